//! Error conditions: each gets a clear line, and everything else is still shown.

use std::time::{Duration, Instant};

use crate::support::machine::{GIB, Machine, assert_closes, json, text};

#[test]
fn no_library_is_said_with_what_to_do() {
    let machine = Machine::new("no-library");
    std::fs::remove_file(machine.folder().join("libnvidia-ml.so.1")).unwrap();
    let output = machine.makeroom("", &["ps"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.starts_with("error: NVML not found: libnvidia-ml.so.1: cannot open"), "{said}");
    assert!(said.contains("hint: install the NVIDIA driver"), "{said}");
}

#[test]
fn no_driver_is_said_and_users_of_its_files_are_shown() {
    let mut machine = Machine::new("no-driver");
    let pid = machine.hold(&["files"]);
    let output = machine.makeroom("fail=nvmlInit_v2:9", &["ps"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("error: the NVIDIA driver is not loaded"));
    assert!(text(&output.stdout).contains(&pid.to_string()));
    let account = json(&machine.makeroom("fail=nvmlInit_v2:9", &["ps", "--json"]).output().unwrap());
    assert_eq!(account["error"]["message"], "the NVIDIA driver is not loaded");
    assert_eq!(account["devices"].as_array().unwrap().len(), 0);
}

#[test]
fn a_library_of_another_version_is_said() {
    let machine = Machine::new("mismatch");
    let output = machine.makeroom("fail=nvmlInit_v2:18", &["ps"]).output().unwrap();
    assert!(text(&output.stderr).starts_with("error: NVML and the loaded driver have different versions"));
}

#[test]
fn a_driver_that_hangs_is_waited_for_no_longer_than_the_deadline() {
    let mut machine = Machine::new("hang");
    let pid = machine.hold(&["files"]);
    for function in ["nvmlInit_v2", "nvmlDeviceGetMemoryInfo_v2"] {
        let began = Instant::now();
        let mut command = machine.makeroom(&format!("hang={function}"), &["ps", "--deadline", "0.5"]);
        let output = command.output().unwrap();
        assert!(began.elapsed() < Duration::from_secs(5), "{function}: {:?}", began.elapsed());
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.starts_with("error: the NVIDIA driver did not respond within 1 s"), "{said}");
        assert!(text(&output.stdout).contains(&pid.to_string()), "its users are still shown");
    }
}

#[test]
fn a_driver_that_hangs_when_it_is_left_takes_nothing_from_the_answer() {
    let mut machine = Machine::new("hang-at-end");
    let pid = machine.hold(&["memory", "64"]);
    let began = Instant::now();
    let output = machine.makeroom("hang=nvmlShutdown", &["ps", "--deadline", "0.5"]).output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains(&pid.to_string()));
}

#[test]
fn a_divided_card_that_tells_only_root_still_shows_its_parts() {
    let mut machine = Machine::new("mig-rights");
    let pid = machine.hold(&["files"]);
    let scenario = format!("mig=0:2,closed=0,hold=0/1:{pid}:1GiB");
    let device = machine.device(&scenario);
    assert_eq!(device["total_bytes"], serde_json::Value::Null);
    assert_eq!(device["holders"][0]["pid"], pid, "by its part");
    assert_eq!(device["parts"][1]["holders"][0]["bytes"], GIB);
    let output = machine.makeroom(&scenario, &["ps"]).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        said.contains(
            "could not read memory, compute processes, graphics processes, MPS clients: the current user"
        ),
        "{said}"
    );
    assert!(said.contains("sudo makeroom ps") && said.contains("MIG instance 0/1"), "{said}");
    let refused = "fail=nvmlDeviceGetMigDeviceHandleByIndex:4";
    let said = text(&machine.makeroom(&format!("mig=0:2,{refused}"), &["ps"]).output().unwrap().stdout);
    assert!(said.contains("could not read MIG instance 0"), "{said}");
    let said = text(&machine.makeroom("fail=nvmlDeviceGetMigMode:4", &["ps"]).output().unwrap().stdout);
    assert!(said.contains("could not read MIG mode"), "{said}");
}

#[test]
fn what_other_people_write_is_neither_waited_for_nor_obeyed() {
    let mut machine = Machine::new("hostile");
    // A recording that is a pipe without a writer.
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "mkfifo x.room; exec 9<>x.room; exec ./hold memory 64 \"$(printf 'a\\nb\\033[2Jc')\""]);
    let pid = machine.start(&mut command, 1)[0];
    let began = Instant::now();
    let output = machine.makeroom("", &["ps"]).output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let said = text(&output.stdout);
    assert!(said.contains(&pid.to_string()) && said.contains("./hold memory 64 a b [2Jc"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn who_ended_since_the_driver_was_asked_is_not_hidden() {
    let machine = Machine::new("brief");
    let device = machine.device("hold=0:4999999:1GiB,brief=4999999,orphan=0:2GiB");
    assert_eq!(device["holders"].as_array().unwrap().len(), 0, "{device:#}");
    let causes = device["unlisted"]["causes"].as_array().unwrap();
    assert!(causes.iter().all(|cause| !cause["evidence"].to_string().contains("4999999")), "{device:#}");
}

#[test]
fn what_matters_most_is_said_first() {
    let mut machine = Machine::with("first", "devices=2,memory=8GiB");
    let pid = machine.hold(&["memory", "1024"]);
    let first = |scenario: &str, words: &[&str]| {
        let said = text(&machine.makeroom(scenario, words).output().unwrap().stdout);
        said.lines().find(|line| !line.is_empty()).unwrap_or_default().trim().to_owned()
    };
    let said = first("", &["ps"]);
    assert!(said.starts_with("GPU 0 has 6.50 GiB of 8.25 GiB free; process"), "{said}");
    assert!(said.contains(&format!("process {pid} holds the most, 1.50 GiB")), "{said}");
    let said = first("orphan=1:2GiB", &["ps"]);
    assert!(said.starts_with("GPU 1: 2.00 GiB has no listed owner; "), "{said}");
    assert!(first("lost=1", &["ps"]).starts_with("GPU 1 does not respond: device fell off the bus"));
    assert!(first("", &["ps", "--require", "9GiB"]).starts_with("9.00 GiB is not free: GPU 1 has the most"));
    assert_eq!(first("", &["ps", "--require", "8GiB"]), "8.00 GiB is free on GPU 1 (free: 8.00 GiB)");
}

#[test]
fn a_folder_without_processes_is_an_error() {
    let machine = Machine::new("no-processes");
    let output = machine.makeroom("", &["ps", "--proc", "dev"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("error: dev is not a /proc file system"));
    let output = machine.makeroom("", &["ps", "--device", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "without --require it means nothing");
}

#[test]
fn a_card_that_fell_off_the_bus_leaves_the_others() {
    let mut machine = Machine::with("lost", "devices=3,memory=8GiB");
    machine.hold(&["memory", "64"]);
    let output = machine.makeroom("lost=1", &["ps"]).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(said.contains("could not read memory"), "{said}");
    assert!(said.contains("GPU 0, makeroom simulated GPU 0"), "{said}");
    assert!(said.contains("GPU 2, makeroom simulated GPU 2"), "{said}");
    assert!(said.find("GPU 1").unwrap() < said.find("GPU 0").unwrap(), "the worst comes first: {said}");
}

#[test]
fn a_divided_card_has_an_account_for_each_part() {
    let mut machine = Machine::new("mig");
    let (one, other) = (machine.hold(&["files"]), machine.hold(&["files"]));
    let scenario = format!("mig=0:2,hold=0/0:{one}:1GiB,hold=0/1:{other}:3GiB");
    let device = machine.device(&scenario);
    assert_closes(&device);
    assert_eq!(device["divided"], true);
    let parts = device["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 2);
    for (part, pid) in parts.iter().zip([one, other]) {
        assert_closes(part);
        assert_eq!(part["holders"][0]["pid"], pid);
        assert!(part["uuid"].as_str().unwrap().starts_with("MIG-"));
    }
    assert_eq!(parts[1]["device"], "0/1");
    assert_eq!(parts[1]["free_bytes"], GIB);
}

#[test]
fn a_process_that_vanishes_is_not_an_error() {
    let mut machine = Machine::new("vanish");
    // PIDs of processes that end while they are inspected.
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "echo $$; while :; do ./hold nothing; done"]);
    machine.start(&mut command, 1);
    for _ in 0..5 {
        let output = machine.makeroom("", &["ps", "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
}

#[test]
fn many_holders_are_cut_in_text_and_whole_in_json() {
    let machine = Machine::with("many", "memory=64GiB");
    let holds: Vec<String> = (0..30).map(|number| format!("hold=0:{}:64MiB", 5_000_000 + number)).collect();
    let scenario = holds.join(",");
    let said = text(&machine.makeroom(&scenario, &["ps"]).output().unwrap().stdout);
    assert!(said.contains("18 more processes (--all shows them)"), "{said}");
    assert!(!said.contains("5000029"));
    let said = text(&machine.makeroom(&scenario, &["ps", "--all"]).output().unwrap().stdout);
    assert!(said.contains("5000029"));
    assert_eq!(machine.device(&scenario)["holders"].as_array().unwrap().len(), 30);
}

#[test]
fn lines_fit_eighty_columns() {
    let mut machine = Machine::new("columns");
    machine.hold(&[
        "memory",
        "2048",
        "a-long-argument-that-would-not-fit-into-eighty-columns-by-any-means-at-all",
    ]);
    let mut command = machine.makeroom("orphan=0:2GiB", &["ps", "--require", "7GiB"]);
    let said = text(&command.env("COLUMNS", "80").output().unwrap().stdout);
    for line in said.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}
