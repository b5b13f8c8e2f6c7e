//! `--require`: whether a size is available, and which processes would have to exit.

use serde_json::Value;

use crate::support::machine::{GIB, Machine, json, text};

fn require(machine: &Machine, scenario: &str, size: &str) -> (i32, Value) {
    let output = machine.makeroom(scenario, &["ps", "--json", "--require", size]).output().unwrap();
    (output.status.code().unwrap(), json(&output)["require"].clone())
}

#[test]
fn what_is_free_can_be_had() {
    let machine = Machine::new("met");
    let (status, requirement) = require(&machine, "", "7GiB");
    assert_eq!((status, &requirement["met"]), (0, &Value::Bool(true)));
    assert_eq!(requirement["plan"], Value::Null);
}

#[test]
fn the_smallest_holder_that_suffices_would_have_to_go() {
    let mut machine = Machine::new("smallest");
    let (large, middle, small) =
        (machine.hold(&["files"]), machine.hold(&["files"]), machine.hold(&["files"]));
    let scenario = format!("hold=0:{large}:4GiB,hold=0:{middle}:2GiB,hold=0:{small}:1GiB");
    let (status, requirement) = require(&machine, &scenario, "2GiB");
    assert_eq!((status, &requirement["met"]), (1, &Value::Bool(false)));
    assert_eq!(requirement["free_bytes"], GIB);
    let remedies = requirement["plan"]["remedies"].as_array().unwrap();
    assert_eq!(remedies.len(), 1);
    assert_eq!(remedies[0]["command"], format!("kill {small}"));
    assert_eq!(requirement["plan"]["free_then_bytes"], 2 * GIB);
    let (_, requirement) = require(&machine, &scenario, "6GiB");
    let remedies = requirement["plan"]["remedies"].as_array().unwrap();
    let commands: Vec<&str> = remedies.iter().map(|remedy| remedy["command"].as_str().unwrap()).collect();
    assert_eq!(commands, [format!("kill {large}"), format!("kill {small}")]);
}

#[test]
fn leftovers_go_before_what_somebody_waits_for() {
    let mut machine = Machine::new("leftovers");
    let (worker, own) = (machine.hold(&["orphan"]), machine.hold(&["files"]));
    let scenario = format!("hold=0:{worker}:3GiB,hold=0:{own}:2GiB");
    let (_, requirement) = require(&machine, &scenario, "4GiB");
    let remedy = &requirement["plan"]["remedies"][0];
    assert_eq!(remedy["command"], format!("kill {worker}"));
    assert!(remedy["loses"].as_str().unwrap().starts_with("nothing: it is a leftover worker (./hold orphan"));
}

#[test]
fn a_program_that_a_shell_left_running_is_not_a_leftover() {
    let mut machine = Machine::new("detached");
    let (program, own) = (machine.hold(&["detached"]), machine.hold(&["files"]));
    let scenario = format!("hold=0:{program}:4GiB,hold=0:{own}:3GiB");
    let (_, requirement) = require(&machine, &scenario, "4GiB");
    let remedy = &requirement["plan"]["remedies"][0];
    assert_eq!(remedy["command"], format!("kill {own}"), "the smaller of two that lose alike");
    assert!(remedy["loses"].as_str().unwrap().starts_with("unsaved work (./hold files"));
    let (_, requirement) = require(&machine, &scenario, "5GiB");
    let remedy = &requirement["plan"]["remedies"][0];
    assert_eq!(remedy["command"], format!("kill {program}"));
    assert!(remedy["loses"].as_str().unwrap().starts_with("unsaved work (./hold detached"));
}

#[test]
fn a_zombie_goes_with_its_parent_and_what_hangs_cannot_go() {
    let mut machine = Machine::new("cannot");
    let zombie = machine.hold(&["zombie"]);
    let (_, requirement) = require(&machine, &format!("hold=0:{zombie}:6GiB"), "4GiB");
    let command = requirement["plan"]["remedies"][0]["command"].as_str().unwrap().to_owned();
    assert_ne!(command, format!("kill {zombie}"));
    assert!(command.starts_with("kill "));
    let hanging = machine.hold(&["uninterruptible"]);
    super::findings::wait_for_state(hanging, 'D');
    let (status, requirement) = require(&machine, &format!("hold=0:{hanging}:6GiB"), "4GiB");
    assert_eq!((status, &requirement["plan"]), (1, &Value::Null));
}

#[test]
fn more_than_the_card_has_cannot_be_had_by_anything() {
    let mut machine = Machine::new("never");
    machine.hold(&["memory", "1024"]);
    let output = machine.makeroom("", &["ps", "--require", "9GiB"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("9.00 GiB is not free: GPU 0 has the most"), "{said}");
    assert!(
        said.contains("Stopping every process that can be stopped from here would not free enough"),
        "{said}"
    );
}

#[test]
fn the_command_and_the_loss_are_printed_and_nothing_is_ended() {
    let mut machine = Machine::new("printed");
    let pid = machine.hold(&["memory", "6000"]);
    let output = machine.makeroom("", &["ps", "--require", "4GiB"]).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains(&format!("kill {pid}  frees 6.")), "{said}");
    assert!(said.contains("lost: unsaved work (./hold memory 6000, user"), "{said}");
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_device_can_be_named() {
    let machine = Machine::with("named", "devices=2,memory=8GiB");
    let scenario = "hold=0:4999999:6GiB";
    let output = machine.makeroom(scenario, &["ps", "--require", "4GiB"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let output = machine.makeroom(scenario, &["ps", "--require", "4GiB", "--device", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

/// With --device, the verdict is about that GPU only.
#[test]
fn a_card_that_was_asked_for_is_the_one_that_is_judged() {
    let mut machine = Machine::with("one-card", "devices=2,memory=8GiB");
    let holder = machine.hold(&["files"]);
    let scenario = format!("hold=0:{holder}:6GiB");
    let said = |device: &str| {
        let words = ["ps", "--require", "4GiB", "--device", device];
        let output = machine.makeroom(&scenario, &words).output().unwrap();
        (output.status.code(), text(&output.stdout))
    };
    let (status, full) = said("0");
    assert_eq!(status, Some(1), "{full}");
    assert!(full.contains("4.00 GiB is not free: GPU 0 has ") && !full.contains("has the most"), "{full}");
    let (status, missing) = said("5");
    assert_eq!(status, Some(1), "{missing}");
    assert!(missing.contains("4.00 GiB is not free: there is no GPU 5, only GPU 0, 1"), "{missing}");
    assert_eq!(said("1").0, Some(0));
}
