//! Findings about a holder.

use std::process::Command;

use crate::support::machine::{GIB, Machine, assert_closes, findings, may_unshare};

#[test]
fn a_plain_holder_is_shown_with_its_command_and_the_account_closes() {
    let mut machine = Machine::new("plain");
    let pid = machine.hold(&["memory", "1024"]);
    let device = machine.device("");
    assert_closes(&device);
    let holder = &device["holders"][0];
    assert_eq!(holder["pid"], pid);
    assert!(holder["bytes"].as_u64().unwrap() >= GIB + (512 << 20));
    assert_eq!(holder["process"]["command"][0], "./hold");
    assert_eq!(holder["process"]["command"][1], "memory");
    assert!(holder["process"]["seconds"].as_f64().unwrap() < 600.0);
    assert_eq!(findings(&device, pid), [""; 0]);
    assert_eq!(device["unlisted"]["bytes"], 0);
}

/// Other users choose the names of their processes.
#[test]
fn a_hostile_name_of_a_process_does_nothing_to_a_terminal() {
    use std::os::unix::process::CommandExt as _;
    let mut machine = Machine::new("hostile");
    let hostile = "tr\u{202e}ain\u{1b}[8m\u{2066}\u{e0041}";
    machine.start(Command::new("./hold").arg0(hostile).args(["memory", "64"]), 1);
    for words in [&["ps"][..], &["doctor"]] {
        let output = machine.makeroom("", words).env_remove("NO_COLOR").env("CLICOLOR_FORCE", "1").output();
        let text = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
        assert!(
            !text.contains(['\u{202e}', '\u{2066}', '\u{e0041}']) && !text.contains("\u{1b}[8m"),
            "{text:?}"
        );
        assert!(words != ["ps"] || text.contains("tr\u{fffd}ain [8m\u{fffd}\u{fffd}"), "{text:?}");
    }
}

#[test]
fn idle_contexts_of_workers_are_counted_and_priced() {
    let mut machine = Machine::new("workers");
    let pids = machine.start(Command::new("./hold").args(["workers", "1024"]), 4);
    let device = machine.device("");
    let groups = device["idle_contexts"].as_array().unwrap();
    assert_eq!(groups.len(), 1, "{device:#}");
    let workers = groups[0]["pids"].as_array().unwrap();
    assert_eq!(workers.len(), 3);
    assert_eq!(groups[0]["bytes"], 3 * (512 << 20));
    let parent = groups[0]["parent"].as_u64().unwrap() as u32;
    assert!(pids.contains(&parent));
    assert!(!findings(&device, parent).contains(&"idle_context".to_owned()));
}

#[test]
fn a_stopped_holder_keeps_its_memory() {
    let mut machine = Machine::new("stopped");
    let pid = machine.hold(&["stopped", "64"]);
    wait_for_state(pid, 'T');
    assert_eq!(findings(&machine.device(""), pid), ["stopped"]);
}

#[test]
fn a_listed_zombie_names_its_parent() {
    let mut machine = Machine::new("listed-zombie");
    let zombie = machine.hold(&["zombie"]);
    let device = machine.device(&format!("hold=0:{zombie}:1GiB"));
    assert_eq!(findings(&device, zombie), ["zombie"]);
    let parent = device["holders"][0]["process"]["parent"].as_u64().unwrap();
    let words = device["holders"][0]["findings"][0]["words"].as_str().unwrap();
    assert_eq!(words, format!("zombie, parent {parent}"));
}

#[test]
fn a_listed_process_that_hangs_in_the_kernel_is_marked() {
    let mut machine = Machine::new("listed-uninterruptible");
    let pid = machine.hold(&["uninterruptible"]);
    wait_for_state(pid, 'D');
    assert_eq!(findings(&machine.device(&format!("hold=0:{pid}:1GiB")), pid), ["uninterruptible"]);
}

#[test]
fn clients_and_servers_of_the_multi_process_service_are_told_apart() {
    let mut machine = Machine::new("mps-lists");
    let server = mps_server(&mut machine);
    let client = machine.hold(&["files"]);
    let scenario = format!("hold=0:{server}:64MiB,hold=0:{client}:2GiB,list={client}:mps");
    let device = machine.device(&scenario);
    assert_closes(&device);
    assert_eq!(findings(&device, server), ["mps_server"]);
    assert_eq!(findings(&device, client), ["mps_client"]);
}

#[test]
fn who_draws_and_computes_is_one_holder() {
    let mut machine = Machine::new("graphics");
    let pid = machine.hold(&["files"]);
    let device = machine.device(&format!("hold=0:{pid}:1GiB,list={pid}:graphics"));
    assert_eq!(findings(&device, pid), ["graphics"]);
    assert_eq!(device["holders"].as_array().unwrap().len(), 1);
}

#[test]
fn a_process_of_a_namespace_below_has_its_number_there() {
    if !may_unshare() {
        return;
    }
    let mut machine = Machine::new("below");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "sh", "-c", "./hold files & wait"]);
    machine.start(&mut command, 1);
    let account = machine.account("");
    let users = account["users_of_driver"].as_array().unwrap();
    let ours = users.iter().find(|user| {
        user["command"][0] == "./hold" && user["inner_pids"].as_array().is_some_and(|inner| inner.len() == 1)
    });
    let user = ours.unwrap_or_else(|| panic!("{account:#}"));
    let pid = user["pid"].as_u64().unwrap() as u32;
    let device = machine.device(&format!("hold=0:{pid}:1GiB"));
    assert_eq!(findings(&device, pid), ["other_namespace"]);
    assert_eq!(device["holders"][0]["process"]["inner_pids"], user["inner_pids"]);
}

#[test]
fn accounting_adds_the_peak() {
    let mut machine = Machine::new("accounting");
    let pid = machine.hold(&["memory", "64"]);
    let device = machine.device(&format!("accounting={pid}:3GiB"));
    assert_eq!(device["holders"][0]["peak_bytes"], 3 * GIB);
}

/// A program with the server's name.
pub(crate) fn mps_server(machine: &mut Machine) -> u32 {
    std::fs::copy(machine.folder().join("hold"), machine.folder().join("nvidia-cuda-mps-server")).unwrap();
    machine.start(Command::new("./nvidia-cuda-mps-server").arg("files"), 1)[0]
}

/// Waits until the kernel shows a process in a state.
pub(crate) fn wait_for_state(pid: u32, state: char) {
    for _ in 0..200 {
        let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        if line.rsplit_once(") ").unwrap().1.starts_with(state) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("{pid} did not get into state {state}");
}
