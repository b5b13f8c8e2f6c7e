//! Runs the planner on public instances that are not part of the project, if `MAKEROOM_PLANNER` names their directory.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic, and says what it skips")]

use std::env;
use std::fs;
use std::path::PathBuf;

use makeroom_plan::{Budget, Outcome, Problem, csv, max_load, plan, validate};

/// The directory of the instances; without one, the test is skipped.
fn directory() -> Option<String> {
    let directory = env::var("MAKEROOM_PLANNER").ok();
    if directory.is_none() {
        eprintln!("skipped: MAKEROOM_PLANNER does not name a directory with instances");
    }
    directory
}

fn instance(directory: &str, name: &str) -> Problem {
    let text = fs::read_to_string(PathBuf::from(directory).join(name)).unwrap();
    Problem { buffers: csv::parse(&text).unwrap().buffers, capacity: None }
}

/// A to K of MiniMalloc at their capacity; eight of them need a perfect packing.
#[test]
fn hard_instances_fit_their_capacity() {
    let Some(directory) = directory() else { return };
    for letter in 'A'..='K' {
        let problem =
            Problem { capacity: Some(1_048_576), ..instance(&directory, &format!("{letter}.1048576.csv")) };
        let Ok(Outcome::Planned { plan, .. }) = plan(&problem, &Budget::default()) else {
            panic!("{letter} does not fit");
        };
        assert!(plan.peak <= 1_048_576);
        validate(&problem, &plan).unwrap();
    }
}

/// Their lower bound is the maximum load, and there are plans that need no more.
#[test]
fn large_instances_reach_their_lower_bound() {
    let Some(directory) = directory() else { return };
    for name in ["resnet50.csv", "G_1.csv", "pangu_2.6B.csv"] {
        let problem = instance(&directory, name);
        let Ok(Outcome::Planned { plan, lower_bound }) = plan(&problem, &Budget::default()) else {
            panic!("{name} cannot be planned");
        };
        validate(&problem, &plan).unwrap();
        assert_eq!(plan.peak, lower_bound, "{name}");
        assert_eq!(max_load(&problem.buffers).unwrap().bytes, u128::from(plan.peak), "{name}");
    }
}
