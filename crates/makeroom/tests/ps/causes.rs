//! Memory without a listed owner: the right cause first, with its evidence.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::findings::{mps_server, wait_for_state};
use crate::support::machine::{
    GIB, Machine, assert_closes, first_cause, is_container, json, may_unshare, text,
};

/// The device, checked to have 2 GiB without an owner.
fn with_orphan(machine: &Machine, scenario: &str) -> serde_json::Value {
    let device = machine.device(&format!("orphan=0:2GiB,{scenario}"));
    assert_closes(&device);
    assert_eq!(device["unlisted"]["bytes"], 2 * GIB);
    device
}

#[test]
fn workers_whose_parent_died() {
    let mut machine = Machine::new("orphan");
    let worker = machine.hold(&["orphan"]);
    let device = with_orphan(&machine, "");
    let (cause, certainty, evidence) = first_cause(&device);
    assert_eq!((cause.as_str(), certainty.as_str()), ("orphaned_workers", "likely"));
    assert!(evidence.contains(&worker.to_string()) && evidence.contains("is dead"), "{evidence}");
    assert_eq!(device["unlisted"]["causes"][0]["fix"], format!("kill {worker}"));
}

#[test]
fn a_zombie_whose_threads_live_on() {
    let mut machine = Machine::new("zombie-thread");
    let pid = machine.hold(&["zombie-thread"]);
    wait_for_state(pid, 'Z');
    let (cause, certainty, evidence) = first_cause(&with_orphan(&machine, ""));
    assert_eq!((cause.as_str(), certainty.as_str()), ("zombie", "likely"));
    assert!(evidence.contains("has exited with threads still running: 1"), "{evidence}");
}

#[test]
fn a_zombie_that_nobody_collects() {
    let mut machine = Machine::new("zombie");
    let zombie = machine.hold(&["zombie"]);
    let device = with_orphan(&machine, "");
    let causes = device["unlisted"]["causes"].as_array().unwrap();
    let cause =
        causes.iter().find(|cause| cause["cause"] == "zombie").unwrap_or_else(|| panic!("{device:#}"));
    assert_eq!(cause["certainty"], "possible");
    assert_eq!(cause["pids"][0], zombie);
}

#[test]
fn a_process_that_hangs_in_the_kernel() {
    let mut machine = Machine::new("uninterruptible");
    let pid = machine.hold(&["uninterruptible"]);
    wait_for_state(pid, 'D');
    let (cause, _, evidence) = first_cause(&with_orphan(&machine, ""));
    assert_eq!(cause, "uninterruptible");
    assert!(evidence.contains("state D"), "{evidence}");
}

#[test]
fn the_server_of_the_multi_process_service() {
    let mut machine = Machine::new("mps");
    let server = mps_server(&mut machine);
    let (cause, certainty, evidence) = first_cause(&with_orphan(&machine, &format!("hold=0:{server}:32MiB")));
    assert_eq!((cause.as_str(), certainty.as_str()), ("mps", "likely"));
    assert!(evidence.contains(&server.to_string()));
}

#[test]
fn a_process_that_the_driver_does_not_list() {
    let mut machine = Machine::new("not-listed");
    let pid = machine.hold(&["memory", "2048"]);
    let device = machine.device(&format!("list={pid}:none"));
    assert_closes(&device);
    let (cause, _, evidence) = first_cause(&device);
    assert_eq!(cause, "not_listed");
    assert!(evidence.contains(&format!("{pid} (./hold memory 2048)")), "{evidence}");
}

#[test]
fn a_process_that_closed_the_files_and_keeps_them_mapped() {
    let mut machine = Machine::new("mapped");
    let pid = machine.hold(&["mapped"]);
    let (cause, _, evidence) = first_cause(&with_orphan(&machine, ""));
    assert_eq!(cause, "not_listed");
    assert!(evidence.contains(&pid.to_string()) && evidence.contains("mapped"), "{evidence}");
}

#[test]
fn managed_memory_that_a_recording_knows() {
    let mut machine = Machine::new("managed");
    let mut command = machine.makeroom("", &["run", "-o", "run.room", "--", "./hold", "managed", "2048"]);
    machine.start(&mut command, 1);
    let device = with_orphan(&machine, "");
    let (cause, _, evidence) = first_cause(&device);
    assert_eq!(cause, "managed_memory", "{device:#}");
    assert!(evidence.contains("2.00 GiB of managed memory, according to its recording"), "{evidence}");
    assert_eq!(device["unlisted"]["causes"][0]["bytes"], 2 * GIB);
    let recording = &device["holders"][0]["recording"];
    assert!(recording["file"].as_str().unwrap().ends_with("run.room"));
}

#[test]
fn managed_memory_is_possible_where_something_computes() {
    let mut machine = Machine::new("managed-possible");
    machine.hold(&["memory", "64"]);
    let (cause, certainty, _) = first_cause(&with_orphan(&machine, ""));
    assert_eq!((cause.as_str(), certainty.as_str()), ("managed_memory", "possible"));
}

#[test]
fn memory_that_another_process_keeps_open() {
    let mut machine = Machine::new("imported");
    let mut command = machine.makeroom("", &["run", "-o", "run.room", "--", "./hold", "imported"]);
    machine.start(&mut command, 1);
    let device = with_orphan(&machine, "");
    let (cause, certainty, evidence) = first_cause(&device);
    assert_eq!((cause.as_str(), certainty.as_str()), ("imported_memory", "likely"), "{device:#}");
    assert!(evidence.contains("1 allocation from other processes open"), "{evidence}");
}

#[test]
fn programs_that_only_watch_are_not_blamed() {
    let mut machine = Machine::new("watchers");
    std::fs::copy(machine.folder().join("hold"), machine.folder().join("nvidia-persistenced")).unwrap();
    let daemon = machine.start(Command::new("./nvidia-persistenced").arg("watch"), 1)[0];
    let other = machine.hold(&["watch"]);
    let device = with_orphan(&machine, "");
    let blamed = |pid: u32| {
        let causes = device["unlisted"]["causes"].as_array().unwrap();
        causes.iter().any(|cause| cause["pids"].as_array().unwrap().contains(&pid.into()))
    };
    assert!(!blamed(daemon), "{device:#}");
    assert!(blamed(other), "a program by another name is: {device:#}");
}

#[test]
fn a_worker_that_is_seen_says_more_than_a_container() {
    if !may_unshare() {
        return;
    }
    let machine = Machine::new("namespace-worker");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
    // The shell is process 1, which adopts orphans.
    let makeroom = env!("CARGO_BIN_EXE_makeroom");
    let waits = "while [ ! -s worker ]; do sleep 0.05; done";
    command.arg(format!("setsid ./hold orphan >worker & {waits}; {makeroom} ps --json"));
    machine.place(&mut command);
    command.env("MAKEROOM_SIMNVML", machine.scenario("orphan=0:2GiB"));
    let account = json(&command.output().unwrap());
    let device = &account["devices"][0];
    assert_eq!(account["view"]["whole_machine"], false);
    assert_eq!(first_cause(device).0, "orphaned_workers", "{device:#}");
    let causes = device["unlisted"]["causes"].as_array().unwrap();
    assert!(causes.iter().any(|cause| cause["cause"] == "other_namespace"), "{device:#}");
}

#[test]
fn a_size_of_nothing_is_none() {
    let mut machine = Machine::new("zero-size");
    let pid = machine.hold(&["files"]);
    let device = with_orphan(&machine, &format!("hold=0:{pid}:0"));
    assert_eq!(first_cause(&device).0, "no_size");
    assert_eq!(crate::support::machine::findings(&device, pid), ["no_size"]);
}

#[test]
fn parts_of_a_card_are_looked_at_alone() {
    let mut machine = Machine::with("part", "devices=2,memory=8GiB");
    let (listed, hidden) = (machine.hold(&["files"]), machine.hold(&["files"]));
    let scenario =
        format!("mig=0:2,hold=0/0:{listed}:1GiB,hold=0/1:{hidden}:2GiB,list={hidden}:none,closed=0");
    let device = machine.device(&scenario);
    let part = &device["parts"][1];
    assert_closes(part);
    let (cause, _, evidence) = first_cause(part);
    assert_eq!(cause, "not_listed");
    assert!(evidence.contains(&hidden.to_string()), "{evidence}");
    assert!(!evidence.contains(&listed.to_string()), "it is listed on the other part: {evidence}");
}

#[test]
fn another_namespace_hides_its_processes() {
    if !may_unshare() {
        return;
    }
    let mut machine = Machine::new("namespace");
    let pid = machine.hold(&["memory", "64"]);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_makeroom"), "ps", "--json"]);
    machine.place(&mut command);
    // A PID that is not in use in a namespace with three processes.
    let scenario = format!("orphan=0:2GiB,hold=0:{}:1GiB", pid.max(1000));
    command.env("MAKEROOM_SIMNVML", machine.scenario(&scenario));
    let account = json(&command.output().unwrap());
    let device = &account["devices"][0];
    assert_eq!(account["view"]["whole_machine"], false);
    let (cause, certainty, evidence) = first_cause(device);
    assert_eq!((cause.as_str(), certainty.as_str()), ("other_namespace", "certain"), "{device:#}");
    assert!(evidence.contains("not visible from here"), "{evidence}");
}

#[test]
fn a_look_from_another_namespace_takes_nothing_from_a_holder() {
    if !may_unshare() {
        return;
    }
    let mut machine = Machine::new("namespace-holder");
    let pid = machine.hold(&["memory", "64"]);
    let before = machine.device("");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_makeroom"), "ps", "--json"]);
    machine.place(&mut command);
    command.env("MAKEROOM_SIMNVML", machine.scenario(""));
    let seen = json(&command.output().unwrap())["devices"][0].clone();
    assert_closes(&seen);
    assert_eq!(crate::support::machine::findings(&seen, pid), ["unseen"], "{seen:#}");
    assert_eq!(seen["holders"][0]["bytes"], before["holders"][0]["bytes"]);
    let after = machine.device("");
    assert_eq!(after["holders"][0]["bytes"], before["holders"][0]["bytes"], "it holds what it held");
}

#[test]
fn a_number_that_is_somebody_elses_in_this_namespace_is_not_taken_for_it() {
    if !may_unshare() {
        return;
    }
    let machine = Machine::new("namespace-number");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_makeroom"), "ps", "--json"]);
    machine.place(&mut command);
    // Process 1 of the new namespace is makeroom itself.
    command.env("MAKEROOM_SIMNVML", "hold=0:1:1GiB");
    let device = json(&command.output().unwrap())["devices"][0].clone();
    assert_eq!(crate::support::machine::findings(&device, 1), ["unseen"]);
}

#[test]
fn processes_without_a_size() {
    let mut machine = Machine::new("no-size");
    let pid = machine.hold(&["memory", "1024"]);
    let device = machine.device(&format!("blind={pid}"));
    assert_closes(&device);
    let (cause, certainty, _) = first_cause(&device);
    assert_eq!((cause.as_str(), certainty.as_str()), ("no_size", "certain"));
    assert_eq!(crate::support::machine::findings(&device, pid), ["no_size"]);
}

#[test]
fn lists_that_this_user_may_not_read() {
    let machine = Machine::new("no-permission");
    let (cause, certainty, evidence) =
        first_cause(&with_orphan(&machine, "fail=nvmlDeviceGetComputeRunningProcesses_v3:4"));
    assert_eq!((cause.as_str(), certainty.as_str()), ("no_permission", "certain"));
    assert!(evidence.contains("could not read compute processes"), "{evidence}");
}

#[test]
fn a_listed_process_that_proc_does_not_have() {
    let machine = Machine::new("unseen");
    // Above the largest PID on 64-bit Linux.
    let device = with_orphan(&machine, "hold=0:4999999:1GiB");
    let (cause, certainty, evidence) = first_cause(&device);
    assert_eq!((cause.as_str(), certainty.as_str()), ("hidden_processes", "likely"), "{device:#}");
    assert!(evidence.contains("4999999"), "{evidence}");
}

#[test]
fn processes_of_others_that_may_not_be_looked_into() {
    let machine = Machine::new("nobody");
    let Some(mut command) = as_nobody(&machine, &["ps", "--json"]) else { return };
    if is_container() {
        command.arg("--proc").arg(machine.processes());
    }
    let scenario = machine.scenario("orphan=0:2GiB");
    let account = json(&command.env("MAKEROOM_SIMNVML", scenario).output().unwrap());
    assert!(account["view"]["unreadable_processes"].as_u64().unwrap() > 0);
    let (cause, certainty, evidence) = first_cause(&account["devices"][0]);
    assert_eq!((cause.as_str(), certainty.as_str()), ("hidden_processes", "possible"));
    assert!(evidence.contains("cannot be inspected"), "{evidence}");
}

#[test]
fn processes_that_a_mount_option_hides() {
    let machine = Machine::new("hidepid");
    // In a container the namespace explains more than the mount does.
    if as_nobody(&machine, &["--version"]).is_none() {
        return;
    }
    if !has_own_proc_options() || is_container() {
        eprintln!("skipped: this kernel or container does not allow mounting /proc with options");
        return;
    }
    let folder = machine.folder().join("proc");
    std::fs::create_dir(&folder).unwrap();
    let script = format!(
        "mount -t proc -o hidepid=2 proc {0} && exec setpriv --reuid 65534 --clear-groups {1} ps --json --proc {0}",
        folder.display(),
        env!("CARGO_BIN_EXE_makeroom")
    );
    let mut command = Command::new("unshare");
    machine.place(command.args(["--mount", "sh", "-c", &script]));
    let nobodys = machine.folder().join("nobody");
    let scenario = machine.scenario("orphan=0:2GiB");
    command.env("MAKEROOM_SIMGPU_DIR", nobodys).env("MAKEROOM_SIMNVML", scenario);
    let output = command.output().unwrap();
    if text(&output.stderr).contains("mount:") {
        // Not permitted here.
        return;
    }
    let account = json(&output);
    assert_eq!(account["view"]["hides_others"], true, "{account:#}");
    let (cause, certainty, evidence) = first_cause(&account["devices"][0]);
    assert_eq!((cause.as_str(), certainty.as_str()), ("hidden_processes", "likely"));
    assert!(evidence.contains("hidepid"), "{evidence}");
}

#[test]
fn a_display() {
    let machine = Machine::new("display");
    let device = with_orphan(&machine, "display=0");
    let causes = device["unlisted"]["causes"].as_array().unwrap();
    assert!(causes.iter().any(|cause| cause["cause"] == "display"), "{device:#}");
}

#[test]
fn figures_that_make_no_sense() {
    let machine = Machine::with("mismatch", "memory=8GiB");
    let device = machine.device("orphan=0:2GiB,hold=0:77:9000GiB");
    // If processes hold more than is used, the difference is negative.
    assert!(device["unlisted"]["bytes"].as_i64().unwrap() < 0);
    assert_closes(&device);
    let (cause, certainty, evidence) = first_cause(&device);
    assert_eq!((cause.as_str(), certainty.as_str()), ("version_mismatch", "likely"));
    assert!(evidence.contains("process 77 holds more memory than the GPU has"), "{evidence}");
}

/// A command as an unprivileged user, with a directory of that user's; `None` if that is not possible here.
fn as_nobody(machine: &Machine, words: &[&str]) -> Option<Command> {
    let nobodys = machine.folder().join("nobody");
    std::fs::create_dir_all(&nobodys).unwrap();
    std::fs::set_permissions(&nobodys, std::fs::Permissions::from_mode(0o777)).unwrap();
    let command = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_makeroom")]).args(words);
        machine.place(&mut command);
        command.env("MAKEROOM_SIMGPU_DIR", &nobodys);
        command
    };
    let can_be_had = command(&["--version"]).output().is_ok_and(|tried| tried.status.success());
    if !can_be_had {
        eprintln!("skipped: only root can run a program as another user");
    }
    can_be_had.then(|| command(words))
}

/// Before Linux 5.8, all mounts of /proc share their options.
fn has_own_proc_options() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (5, 8)
}
