//! Runs the planner on public instances that are not part of the project, if `MAKEROOM_PLANNER` names their directory.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic, and says what it skips")]

use std::env;
use std::fs;
use std::path::PathBuf;

use makeroom_plan::validate::validate;
use makeroom_plan::{Budget, Outcome, Problem, csv, load, plan};

/// The folder of the instances; without one, the test is skipped.
fn folder() -> Option<String> {
    let folder = env::var("MAKEROOM_PLANNER").ok();
    if folder.is_none() {
        eprintln!("skipped: MAKEROOM_PLANNER does not name a folder with instances");
    }
    folder
}

fn instance(folder: &str, name: &str) -> Problem {
    let text = fs::read_to_string(PathBuf::from(folder).join(name)).unwrap();
    Problem { buffers: csv::parse(&text).unwrap().buffers, capacity: None }
}

/// A to K of `MiniMalloc` at their capacity; eight of them need a perfect packing.
#[test]
fn hard_instances_fit_their_capacity() {
    let Some(folder) = folder() else { return };
    for letter in 'A'..='K' {
        let problem =
            Problem { capacity: Some(1_048_576), ..instance(&folder, &format!("{letter}.1048576.csv")) };
        let Ok(Outcome::Planned { plan, .. }) = plan(&problem, &Budget::default()) else {
            panic!("{letter} does not fit");
        };
        assert!(plan.height <= 1_048_576);
        validate(&problem, &plan).unwrap();
    }
}

#[test]
fn large_instances_come_close_to_their_load() {
    let Some(folder) = folder() else { return };
    for (name, most) in [("resnet50.csv", 1.0015), ("G_1.csv", 1.0015), ("pangu_2.6B.csv", 1.01)] {
        let problem = instance(&folder, name);
        let Ok(Outcome::Planned { plan, .. } | Outcome::GaveUp { best: plan, .. }) =
            plan(&problem, &Budget::quick())
        else {
            panic!("{name} cannot be planned");
        };
        validate(&problem, &plan).unwrap();
        let ratio = plan.height as f64 / load::peak(&problem.buffers).unwrap().bytes as f64;
        assert!(ratio <= most, "{name}: {ratio}");
    }
}
