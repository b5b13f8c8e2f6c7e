//! Rules that need a view of the whole machine with all processes readable, where tests rarely run.

use makeroom_ordered::OrderedMap;

use super::{Cause, Certainty, Device, Finding, join};
use crate::processes::{OpenFiles, Process, Processes, Stat, View};
use crate::survey::{Card, List, Listed, Memory, Survey};

const GIB: u64 = 1 << 30;

/// A GPU of 8 GiB with 2 GiB of unlisted memory in addition to `listed`.
fn device(listed: Vec<Listed>, processes: &Processes) -> Device {
    let held: u64 = listed.iter().filter_map(|one| one.bytes).sum();
    let used = held + 2 * GIB;
    let memory = Memory { total: 8 * GIB, reserved: 0, used, free: 8 * GIB - used };
    let card = Card { minor: Some(0), memory: Some(memory), listed, ..Card::default() };
    join(&Survey { cards: vec![card], ..Survey::default() }, processes, &OrderedMap::new()).remove(0)
}

fn stat(pid: u32, parent: u32, group: u32, session: u32) -> Stat {
    Stat { pid, name: "python".to_owned(), parent, group, session, threads: 1, ..Stat::default() }
}

fn process(stat: Stat, words: &[&str]) -> Process {
    Process {
        stat,
        command: words.iter().map(|word| (*word).to_owned()).collect(),
        user: Some(1000),
        user_name: "alice".to_owned(),
        files: OpenFiles { cards: [0].into(), unified: true, ..OpenFiles::default() },
        ..Process::default()
    }
}

fn machine(processes: Vec<Process>) -> Processes {
    let init = stat(1, 0, 1, 1);
    let stats: OrderedMap<u32, Stat> = processes
        .iter()
        .map(|process| process.stat.clone())
        .chain([init])
        .map(|stat| (stat.pid, stat))
        .collect();
    let known = processes.into_iter().map(|process| (process.stat.pid, process)).collect();
    let view = View { is_whole_machine: Some(true), ..View::default() };
    Processes { stats, known, view, has_mapped: true }
}

fn listed(pid: u32) -> Listed {
    Listed { pid, list: List::Compute, bytes: Some(GIB), peak: None }
}

#[test]
fn memory_without_any_user_is_the_drivers() {
    let found = device(Vec::new(), &machine(Vec::new()));
    let cause = &found.unlisted.causes[0];
    assert_eq!((cause.cause, cause.certainty), (Cause::Driver, Certainty::Likely));
    assert!(cause.fix.contains("nvidia-smi --gpu-reset -i 0"), "{}", cause.fix);
    let mut hides = machine(Vec::new());
    hides.view.unreadable = 1;
    let found = device(Vec::new(), &hides);
    assert!(found.unlisted.causes.iter().all(|cause| cause.cause != Cause::Driver), "not all could be seen");
}

/// Findings about a process with this parent, group and command line; 50 is a running shell.
fn findings(parent: u32, group: u32, words: &[&str]) -> Vec<Finding> {
    let shell = process(stat(50, 40, 50, 50), &["bash"]);
    let processes = machine(vec![shell, process(stat(77, parent, group, 50), words)]);
    device(vec![listed(77)], &processes).holders.remove(0).findings
}

#[test]
fn who_outlives_its_shell_is_told_from_who_outlives_its_parent() {
    let train = ["python", "train.py"];
    let worker = ["python", "-c", "from multiprocessing.spawn import spawn_main"];
    assert_eq!(findings(50, 77, &train), [], "a command of a living shell");
    assert_eq!(findings(1, 77, &train), [], "nohup python train.py &, and the shell ended");
    assert_eq!(findings(1, 60, &train), [Finding::Orphaned { group: Some(60) }], "its group's first is dead");
    assert_eq!(findings(1, 77, &worker), [Finding::Orphaned { group: None }], "it says what it is");
    assert_eq!(findings(50, 60, &train), [], "the first of a pipe has ended");
}

#[test]
fn workers_of_a_containers_first_process_have_a_parent() {
    let mut processes = machine(vec![process(
        stat(77, 1, 1, 1),
        &["python", "-c", "from multiprocessing.spawn import spawn_main"],
    )]);
    processes.view.is_whole_machine = Some(false);
    assert_eq!(device(vec![listed(77)], &processes).holders[0].findings, []);
}

/// Findings about a process in a container, whose parent is the container's PID 1 and runs the same program or
/// another.
fn findings_in_container(words: &[&str], has_parents_program: Option<bool>) -> Vec<Finding> {
    let mut found = process(stat(77, 1, 1, 1), words);
    found.has_parents_program = has_parents_program;
    device(vec![listed(77)], &machine(vec![found])).holders.remove(0).findings
}

#[test]
fn a_container_of_one_session_adopts_workers_too() {
    let worker = ["python", "-c", "from multiprocessing.spawn import spawn_main"];
    assert_eq!(findings_in_container(&worker, Some(false)), [Finding::Orphaned { group: None }]);
    assert_eq!(findings_in_container(&worker, Some(true)), [], "the first process started it");
    assert_eq!(findings_in_container(&worker, None), [], "nobody knows");
    assert_eq!(findings_in_container(&["ray::train"], Some(false)), [], "raylet starts what Python runs");
    assert_eq!(findings_in_container(&["python", "train.py"], Some(false)), [], "a shell started it");
}

#[test]
fn only_a_parent_that_is_dead_is_called_so() {
    let worker = ["python", "-c", "from multiprocessing.spawn import spawn_main"];
    let mut adopted = process(stat(77, 1, 1, 1), &worker);
    adopted.has_parents_program = Some(false);
    let left = process(stat(78, 1, 60, 50), &["python", "train.py"]);
    let found = device(Vec::new(), &machine(vec![adopted, left]));
    let cause = found.unlisted.causes.iter().find(|cause| cause.cause == Cause::OrphanedWorkers).unwrap();
    assert_eq!(cause.pids, [77, 78]);
    let [of_adopted, of_left] = &cause.evidence[..] else { panic!("{:?}", cause.evidence) };
    assert!(of_adopted.ends_with("and its parent is dead"), "its group's first lives: {of_adopted}");
    assert!(of_left.ends_with("and its process group leader 60 is dead"), "{of_left}");
}

#[test]
fn a_server_that_made_itself_a_daemon_is_no_orphan() {
    let server = process(stat(77, 1, 60, 60), &["/usr/bin/nvidia-cuda-mps-server"]);
    let processes = machine(vec![server]);
    assert_eq!(device(vec![listed(77)], &processes).holders[0].findings, [Finding::MpsServer]);
}

#[test]
fn who_is_listed_on_parts_alone_is_a_holder_of_the_card_with_their_sum() {
    let part = |index, pid| Card { index, listed: vec![listed(pid)], ..Card::default() };
    let card = Card { is_divided: true, parts: vec![part(0, 7), part(1, 7), part(2, 8)], ..Card::default() };
    let survey = Survey { cards: vec![card], ..Survey::default() };
    let device = join(&survey, &machine(Vec::new()), &OrderedMap::new()).remove(0);
    let holders: Vec<(u32, u64)> =
        device.holders.iter().map(|holder| (holder.pid, holder.bytes.unwrap_or_default().get())).collect();
    assert_eq!(holders, [(7, 2 * GIB), (8, GIB)]);
}
