//! What the log of a launcher, a scheduler or the kernel says about the ranks of a job.
//!
//! Such a log is not a process of the job, although it reports failures:
//!
//! ```text
//! it names a PID (`Killed process 4711`)                 a failure of the process with that PID
//! it repeats what the lines of a rank show               nothing new
//! it reports lost connections or requests to end         of ranks that are known otherwise: nothing new
//! it reports that a process was killed, without a PID    a failure of the rank that was killed, if there is only one
//! a traceback without the name of a rank                 a process of its own, named after the file
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::select::Process;
use crate::tables::{End, FailureKind, FailureRow, RecordingKind, RecordingRow, Rows};

/// Failures by recording.
pub(super) type Reports<'rows> = BTreeMap<&'rows str, Vec<&'rows FailureRow>>;

/// The failures of each recording, without those of other processes.
pub(super) fn reports(rows: &Rows) -> Reports<'_> {
    let mut reports: Reports<'_> = BTreeMap::new();
    for failure in rows.failures.iter().filter(|failure| failure.pid.is_none()) {
        reports.entry(&failure.recording).or_default().push(failure);
    }
    reports
}

/// Whether nothing says which process a log is about.
pub(super) fn is_unnamed(row: &RecordingRow) -> bool {
    row.kind == RecordingKind::Log && !row.names_rank() && row.pid.is_none()
}

/// Whether a log without the name of a process shows a failure that no named process has shown.
pub(super) fn is_evidence(row: &RecordingRow, named: &[&RecordingRow], reports: &Reports<'_>) -> bool {
    let kinds = |row: &RecordingRow| -> BTreeSet<FailureKind> {
        let found = reports.get(row.recording.as_str());
        found.into_iter().flatten().map(|failure| failure.kind).collect()
    };
    let own = kinds(row);
    let is_own =
        |kind: &FailureKind| kind.is_memory() || matches!(kind, FailureKind::Killed | FailureKind::Other);
    // The launcher repeats the error of a rank.
    let repeated: BTreeSet<FailureKind> =
        named.iter().filter(|named| named.file() == row.file()).flat_map(|named| kinds(named)).collect();
    own.iter().any(|kind| is_own(kind) && !repeated.contains(kind))
}

/// Adds failures that name a PID to the process with that PID. Hosts may reuse a number, so it counts only if one
/// process has it. If none has, the only rank that was killed and whose PID is not known is meant. Returns the processes
/// that the kernel killed and that are not known: PID and file.
pub(super) fn add_reported<'rows>(
    rows: &'rows Rows,
    processes: &mut [Process<'rows>],
) -> BTreeSet<(u32, &'rows str)> {
    let mut unknown = BTreeSet::new();
    let is_unknown = |process: &Process<'_>| process.pid.is_none() && process.end == End::Killed;
    for failure in &rows.failures {
        let Some(pid) = failure.pid else { continue };
        let has_pid = |process: &Process<'_>| process.pid == Some(pid);
        let is_known = processes.iter().any(has_pid);
        let is_owner =
            |process: &&mut Process<'_>| if is_known { has_pid(process) } else { is_unknown(process) };
        let mut owners = processes.iter_mut().filter(is_owner);
        if let (Some(owner), None) = (owners.next(), owners.next()) {
            owner.failures.push(failure);
        } else if failure.kind == FailureKind::HostMemory {
            unknown.insert((pid, failure.recording.as_str()));
        }
    }
    unknown
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
