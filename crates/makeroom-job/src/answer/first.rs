//! What came first where ranks ended in different ways: a kill before a failed allocation, or a scheduler that ended ranks
//! which had not failed.

use super::select::Process;
use super::stall;
use crate::report::RankFate;
use crate::tables::{End, FailureKind, StopRow};

/// Ranks that were killed before others ran out of device memory: the launcher names one as the root cause, or reports the
/// kill earlier in the same log.
pub(super) fn killed_before(processes: &[Process<'_>], killed: &[usize], ran_out: &[usize]) -> Vec<usize> {
    if ran_out.is_empty() || ran_out.iter().any(|&index| processes[index].is_first_failure) {
        return Vec::new();
    }
    let roots: Vec<usize> =
        killed.iter().copied().filter(|&index| processes[index].is_first_failure).collect();
    if !roots.is_empty() {
        return roots;
    }
    let shown: Vec<(&str, u64)> = ran_out
        .iter()
        .filter_map(|&index| Some((processes[index].row.file(), processes[index].decisive()?.line?)))
        .collect();
    let is_before = |&index: &usize| {
        let ended = processes[index].ended_at;
        let is_later =
            |&(file, line): &(&str, u64)| ended.is_some_and(|(own, end)| own == file && end < line);
        shown.len() == ran_out.len() && shown.iter().all(is_later)
    };
    killed.iter().copied().filter(is_before).collect()
}

/// Whether a process ended before the scheduler ended the job: known if the same log reports both.
pub(super) fn ended_before(process: &Process<'_>, stop: &StopRow) -> Option<bool> {
    let (file, line) = process.ended_at?;
    stop.line.filter(|_| stop.file == file).map(|stop| line < stop)
}

/// Whether a rank failed in a way that a scheduler's request to end does not explain.
pub(super) fn has_own_failure(
    processes: &[Process<'_>],
    killed: &[usize],
    failed: &[usize],
    stop: &StopRow,
) -> bool {
    let is_crash = |process: &Process<'_>| {
        process.error.is_some() && !process.has_only_exit_code() || matches!(process.end, End::Signaled(_))
    };
    killed.iter().any(|&index| processes[index].reports(FailureKind::HostMemory))
        || failed.iter().any(|&index| is_crash(&processes[index]))
        || killed.iter().chain(failed).any(|&index| ended_before(&processes[index], stop) == Some(true))
}

/// Whether the ranks waited for another one, until the scheduler ended them.
pub(super) fn is_stalled(processes: &[Process<'_>], fates: &[RankFate]) -> bool {
    fates.contains(&RankFate::CollectiveTimeout) && stall::find(processes, fates).is_some()
}
