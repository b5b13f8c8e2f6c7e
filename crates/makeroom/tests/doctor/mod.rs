//! `makeroom doctor` on the software NVML: problems are reported with a fix, and set the exit status.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::support::machine::{Machine, json, text};

fn verdict(value: &serde_json::Value, subject: &str) -> Option<String> {
    let checks = value["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["subject"] == subject)?;
    check["verdict"].as_str().map(str::to_owned)
}

#[test]
fn a_machine_in_order_can_be_recorded_on() {
    let machine = Machine::new("order");
    let output = machine.makeroom("persistence=on", &["doctor", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let value = json(&output);
    assert_eq!(verdict(&value, "driver").as_deref(), Some("good"));
    assert_eq!(verdict(&value, "injection").as_deref(), Some("good"));
    assert_eq!(verdict(&value, "persistence"), None);
}

#[test]
fn modes_of_cards_are_read_from_the_driver() {
    let machine = Machine::new("modes");
    let output = machine.makeroom("mode=2,mig=0:2", &["doctor"]).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("GPU 0 is in compute mode PROHIBITED"), "{said}");
    assert!(said.contains("sudo nvidia-smi -i 0 -c DEFAULT"), "{said}");
    assert!(said.contains("in MIG mode with 2 instances"), "{said}");
    let value = json(&machine.makeroom("mode=3", &["doctor", "--json"]).output().unwrap());
    assert_eq!(verdict(&value, "compute_mode").as_deref(), Some("note"));
    assert_eq!(verdict(&value, "persistence").as_deref(), Some("note"));
}

#[test]
fn the_kernel_module_is_read_below_proc() {
    let machine = Machine::new("proc");
    let proc = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("doctor-proc");
    std::fs::create_dir_all(proc.join("driver/nvidia")).unwrap();
    std::fs::write(proc.join("uptime"), "1.00 1.00\n").unwrap();
    let version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  450.80.02  Wed Sep 23 2020\n";
    std::fs::write(proc.join("driver/nvidia/version"), version).unwrap();
    let arguments = ["doctor", "--proc", proc.to_str().unwrap()];
    let said = text(&machine.makeroom("", &arguments).output().unwrap().stdout);
    assert!(said.contains("the loaded kernel module is version 450.80.02"), "{said}");
}

#[test]
fn no_driver_and_a_driver_that_hangs_are_problems_beside_the_rest() {
    let machine = Machine::new("none");
    for scenario in ["fail=nvmlInit_v2:9", "hang=nvmlDeviceGetCount_v2"] {
        let output = machine.makeroom(scenario, &["doctor", "--json", "--deadline", "0.5"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let value = json(&output);
        assert_eq!(verdict(&value, "driver").as_deref(), Some("problem"));
        assert!(verdict(&value, "allocators").is_some() && verdict(&value, "injection").is_some());
    }
}

#[test]
fn settings_of_the_environment_are_looked_at() {
    let machine = Machine::new("settings");
    let mut command = machine.makeroom("", &["doctor"]);
    command.env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:yes").env("CUDA_VISIBLE_DEVICES", "3");
    let output = command.output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("`expandable_segments:yes` must be exactly True or False"), "{said}");
    assert!(said.contains("GPU `3` does not exist"), "{said}");
}
