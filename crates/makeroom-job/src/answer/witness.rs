//! What the log of a launcher, a scheduler or the kernel says about the ranks of a job.
//!
//! Such a log is not a process of the job, although it reports failures:
//!
//! ```text
//! it names a PID (`Killed process 4711`)                 a failure of the process with that PID; if no PID is known,
//!                                                        likely of the only rank that was killed
//! it repeats what the lines of a rank show               nothing new
//! it reports lost connections or requests to end         of ranks that are known otherwise: nothing new
//! it reports that a process was killed, without a PID    a failure of the rank that was killed, if there is only one
//! a traceback without the name of a rank                 a process of its own, named after the file
//! ```

use makeroom_ordered::{OrderedMap, OrderedSet};

use super::select::Process;
use crate::tables::{End, FailureKind, FailureRow, KilledProcess, RecordingKind, RecordingRow, Rows};

/// Failures by recording.
pub(super) type Reports<'rows> = OrderedMap<&'rows str, Vec<&'rows FailureRow>>;

/// The failures of each recording, without those of other processes.
pub(super) fn reports(rows: &Rows) -> Reports<'_> {
    let mut reports: Reports<'_> = OrderedMap::new();
    for failure in rows.failures.iter().filter(|failure| failure.pid.is_none()) {
        reports.entry(&failure.recording).or_default().push(failure);
    }
    reports
}

/// Whether nothing says which process a log is about.
pub(super) fn is_unnamed(row: &RecordingRow) -> bool {
    row.kind == RecordingKind::Log && !row.names_rank() && row.process.is_none() && row.pid.is_none()
}

/// The kinds of failure of the named processes in each file.
pub(super) fn kinds_by_file<'rows>(
    named: &[&'rows RecordingRow],
    reports: &Reports<'rows>,
) -> OrderedMap<&'rows str, OrderedSet<FailureKind>> {
    let mut shown: OrderedMap<&str, OrderedSet<FailureKind>> = OrderedMap::new();
    for row in named {
        shown.entry(row.file()).or_default().extend(kinds(row, reports));
    }
    shown
}

fn kinds(row: &RecordingRow, reports: &Reports<'_>) -> OrderedSet<FailureKind> {
    let found = reports.get(row.recording.as_str());
    found.into_iter().flatten().map(|failure| failure.kind).collect()
}

/// Whether a log without the name of a process shows a failure that no named process in it has shown: the launcher
/// repeats the error of a rank.
pub(super) fn is_evidence(
    row: &RecordingRow,
    shown: &OrderedMap<&str, OrderedSet<FailureKind>>,
    reports: &Reports<'_>,
) -> bool {
    let repeated = shown.get(row.file());
    let is_own = |kind: &FailureKind| {
        kind.is_memory() || matches!(kind, FailureKind::Killed | FailureKind::ExitCode | FailureKind::Other)
    };
    kinds(row, reports)
        .iter()
        .any(|kind| is_own(kind) && !repeated.is_some_and(|repeated| repeated.contains(kind)))
}

/// Programs that run many other ones, so that their name does not identify a rank.
const INTERPRETERS: [&str; 3] = ["python", "pt_main_thread", "pt_data_worker"];

/// Adds failures that name a PID to the process with that PID. Hosts may reuse a number, so it counts only if one
/// process has it. If none has, the only rank that was killed and whose PID is not known can be meant, or for a kill in a
/// container the only rank that was killed: PIDs in a container are not those of the kernel. Returns the processes that
/// the kernel killed and that are not known: PID and file.
pub(super) fn add_reported<'rows>(
    rows: &'rows Rows,
    processes: &mut [Process<'rows>],
) -> OrderedSet<(u32, &'rows str)> {
    let mut by_pid: OrderedMap<u32, ByHost> = OrderedMap::new();
    let (mut killed_ranks, mut killed_without_pid) = (ByHost::default(), ByHost::default());
    for (index, process) in processes.iter().enumerate() {
        let host = process.host.map(short);
        if let Some(pid) = process.pid {
            by_pid.entry(pid).or_default().add(index, host.as_deref());
        }
        if process.end == End::Killed {
            killed_ranks.add(index, host.as_deref());
            if process.pid.is_none() {
                killed_without_pid.add(index, host.as_deref());
            }
        }
    }
    let mut unknown = OrderedSet::new();
    for failure in &rows.failures {
        let Some(pid) = failure.pid else { continue };
        let killed = failure.killed.as_ref();
        let host = killed.and_then(|killed| killed.host.as_deref()).map(short);
        let is_possible = |index: &usize| killed.is_none_or(|killed| can_run(&processes[*index], killed));
        // Two are enough to see that there are several.
        let found = |ranks: &ByHost| -> Vec<usize> {
            ranks.on(host.as_deref()).filter(is_possible).take(2).collect()
        };
        let known = by_pid.get(&pid).map(found).unwrap_or_default();
        let is_host_memory = failure.kind == FailureKind::HostMemory;
        let owners = match known.as_slice() {
            [] if is_host_memory && is_container(killed) => found(&killed_ranks),
            [] if is_host_memory => found(&killed_without_pid),
            _ => known,
        };
        if let [owner] = *owners {
            processes[owner].failures.push(failure);
        } else if is_host_memory {
            unknown.insert((pid, failure.recording.as_str()));
        }
    }
    unknown
}

/// Processes by host. A log can report thousands of kills in a job of many thousand ranks, so they are not compared one by
/// one.
#[derive(Debug, Default)]
struct ByHost {
    all: Vec<usize>,
    known: OrderedMap<String, Vec<usize>>,
    /// Those whose host is not known.
    unknown: Vec<usize>,
}

impl ByHost {
    /// Adds a process with its short host name.
    fn add(&mut self, index: usize, host: Option<&str>) {
        self.all.push(index);
        match host {
            Some(host) => self.known.entry(host.to_owned()).or_default().push(index),
            None => self.unknown.push(index),
        }
    }

    /// The processes that can be on a host.
    fn on(&self, host: Option<&str>) -> impl Iterator<Item = usize> {
        let (first, second) = match host {
            Some(host) => (self.known.get(host).map_or(&[][..], Vec::as_slice), self.unknown.as_slice()),
            None => (self.all.as_slice(), &[][..]),
        };
        first.iter().chain(second).copied()
    }
}

/// The name of a host without its domain.
fn short(host: &str) -> String {
    host.split('.').next().unwrap_or(host).to_ascii_lowercase()
}

/// Whether the program of a process does not contradict that the kernel killed it.
fn can_run(process: &Process<'_>, killed: &KilledProcess) -> bool {
    let programs = process.row.program.as_deref().zip(killed.program.as_deref());
    let is_same_program = |(own, killed): (&str, &str)| {
        // The kernel keeps 15 bytes of a name. A script runs in an interpreter.
        is_interpreter(killed) && (own.contains(".py") || is_interpreter(own)) || is_called(own, killed)
    };
    programs.is_none_or(is_same_program)
}

/// Whether the kernel killed a process of a container.
fn is_container(killed: Option<&KilledProcess>) -> bool {
    const CONTAINERS: [&str; 5] = ["kubepods", "docker", "containerd", "libpod", "lxc"];
    let cgroup = killed.and_then(|killed| killed.cgroup.as_deref()).unwrap_or_default();
    CONTAINERS.iter().any(|name| cgroup.contains(name))
}

fn is_interpreter(program: &str) -> bool {
    INTERPRETERS.iter().any(|name| program.starts_with(name))
}

/// Whether the kernel's name is that of a program: the kernel keeps 15 bytes.
fn is_called(program: &str, killed: &str) -> bool {
    const KEPT: usize = 15;
    program == killed || killed.len() >= KEPT && program.starts_with(killed)
}

/// How certain it is that the kernel killed this process because host memory ran out. `None` if nothing reports it.
pub(super) fn certainty(process: &Process<'_>) -> Option<&'static str> {
    let failures = process.failures.iter().filter(|failure| failure.kind == FailureKind::HostMemory);
    let job = process.row.job.as_deref().map(|job| format!("job_{job}"));
    let of = |failure: &&FailureRow| {
        let Some(killed) = failure.killed.as_ref().filter(|_| failure.pid != process.pid) else {
            return "certain";
        };
        let cgroup = killed.cgroup.as_deref().unwrap_or_default();
        let is_in_cgroup = job.as_ref().is_some_and(|job| cgroup.split('/').any(|part| part == job));
        let program = killed.program.as_deref().unwrap_or_default();
        let is_named = process.row.program.as_deref().is_some_and(|own| is_called(own, program));
        match () {
            () if is_in_cgroup || is_named && !is_interpreter(program) => "certain",
            () if is_interpreter(program) => "likely",
            () => "possible",
        }
    };
    let order = ["certain", "likely", "possible"];
    failures.map(of).min_by_key(|name| order.iter().position(|known| known == name))
}

/// The kernel's report about a process, if only circumstances show that this process is meant.
pub(super) fn supposed<'rows>(process: &Process<'rows>) -> Option<&'rows FailureRow> {
    if certainty(process) == Some("certain") {
        return None;
    }
    let is_supposed = |failure: &&FailureRow| {
        failure.kind == FailureKind::HostMemory && failure.killed.is_some() && failure.pid != process.pid
    };
    process.failures.iter().copied().find(is_supposed)
}

/// Removes the logs that report that a process was killed, and adds this to the only rank that was.
pub(super) fn attach_kills(processes: &mut Vec<Process<'_>>) {
    let is_report = |process: &Process<'_>| {
        is_unnamed(process.row)
            && !process.failures.is_empty()
            && process
                .failures
                .iter()
                .all(|failure| matches!(failure.kind, FailureKind::HostMemory | FailureKind::Killed))
    };
    let is_killed = |process: &Process<'_>| {
        !is_report(process) && matches!(process.end, End::Killed | End::Signaled(9))
            || process.reports(FailureKind::HostMemory) && !is_report(process)
    };
    let mut killed = processes.iter().enumerate().filter(|(_, process)| is_killed(process));
    let (Some((owner, _)), None) = (killed.next(), killed.next()) else { return };
    // A launcher that reports SIGKILL does not know the reason; the explanation of its log only supposes one.
    let is_certain = |process: &Process<'_>| process.row.certainty == "certain";
    let reported: Vec<_> = processes
        .iter()
        .filter(|process| is_report(process) && is_certain(process))
        .flat_map(|process| process.failures.clone())
        .collect();
    processes[owner].failures.extend(reported);
    let mut index = 0;
    processes.retain(|process| {
        index += 1;
        index - 1 == owner || !is_report(process)
    });
}
