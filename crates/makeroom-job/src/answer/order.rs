//! Which process ended first, where nothing else tells the culprit from the ranks that the launcher killed.
//!
//! A process that is killed leaves no end. It died between its last record and the one it would have written next. How long
//! that takes, the silences before show, the longest of its host:
//!
//! ```text
//! exited        ended at its last record
//! killed        ended at last record + silence / 2, give or take silence / 2
//! ```
//!
//! Only processes of one host are compared, because clocks of hosts differ.

use super::select::Process;
use crate::report::RankFate;
use makeroom_core::SortCompact as _;
use makeroom_ordered::OrderedMap;

/// The silence of a recording that does not show one: recorders wrote once a second.
const UNKNOWN_SILENCE_US: u64 = 1_000_000;
/// The shortest silence that is assumed: a busy machine runs the recorder late.
const LEAST_SILENCE_US: u64 = 100_000;
/// Ends that are closer than this, in microseconds, are the same.
const SAME_US: u64 = 15_000;
/// Fewer processes than this do not show when all of them were killed.
const BULK: usize = 3;

/// When a process ended, in microseconds since the epoch: `at` ± `error`.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: u64,
    error: u64,
}

impl Moment {
    /// Whether it is before another one beyond the errors of both.
    fn ends_before(self, other: Self) -> bool {
        let latest = self.at.saturating_add(self.error).saturating_add(SAME_US);
        latest <= other.at.saturating_sub(other.error)
    }
}

/// The longest silence of the killed processes of each host: a busy host delays all its recorders.
fn silences<'rows>(processes: &[Process<'rows>], fates: &[RankFate]) -> OrderedMap<Option<&'rows str>, u64> {
    let mut silences = OrderedMap::new();
    for (process, _) in processes.iter().zip(fates).filter(|(_, fate)| **fate == RankFate::Killed) {
        let longest = silences.entry(process.row.host.as_deref()).or_insert(LEAST_SILENCE_US);
        *longest = process.row.silence_us.unwrap_or(UNKNOWN_SILENCE_US).max(*longest);
    }
    silences
}

/// When the processes of a job ended.
pub(super) struct Ends<'case, 'rows> {
    processes: &'case [Process<'rows>],
    moments: Vec<Option<Moment>>,
}

impl<'case, 'rows> Ends<'case, 'rows> {
    pub(super) fn new(processes: &'case [Process<'rows>], fates: &[RankFate]) -> Self {
        let silences = silences(processes, fates);
        let moment = |(process, &fate): (&Process<'_>, &RankFate)| {
            let silence = silences.get(&process.row.host.as_deref()).filter(|_| fate == RankFate::Killed);
            let error = silence.map_or(0, |silence| silence / 2);
            Some(Moment { at: process.row.ended_us?.saturating_add(error), error })
        };
        let moments = processes.iter().zip(fates).map(moment).collect();
        Self { processes, moments }
    }

    /// Whether it is known when a process ended.
    pub(super) fn is_known(&self, index: usize) -> bool {
        self.moments[index].is_some()
    }

    /// Whether one process ended before another for sure: on the same host, beyond the error of both.
    pub(super) fn is_before(&self, one: usize, other: usize) -> bool {
        let (Some(first), Some(second)) = (self.moments[one], self.moments[other]) else { return false };
        let host = |index: usize| self.processes[index].row.host.as_deref();
        host(one) == host(other) && first.ends_before(second)
    }

    /// The process among these that ended first, and how certain that is. `None` if it is not known.
    pub(super) fn first(&self, among: &[usize]) -> Option<(usize, &'static str)> {
        let mut hosts: OrderedMap<Option<&str>, Vec<(Moment, usize)>> = OrderedMap::new();
        for &index in among {
            let ended = (self.moments[index]?, index);
            hosts.entry(self.processes[index].row.host.as_deref()).or_default().push(ended);
        }
        let is_one_host = hosts.len() == 1;
        let mut found = hosts.into_values().filter_map(first_of_host);
        let (index, is_sure) = found.next()?;
        match (found.next(), is_one_host) {
            (Some(_), _) => None,
            (None, true) => Some((index, if is_sure { "likely" } else { "possible" })),
            // On the other hosts all ended together, or there is nothing to compare with.
            (None, false) => is_sure.then_some((index, "possible")),
        }
    }

    /// How long before the others a process ended, in microseconds.
    pub(super) fn lead(&self, first: usize, others: &[usize]) -> Option<u64> {
        let host = |index: usize| self.processes[index].row.host.as_deref();
        let others = others.iter().filter(|&&other| other != first && host(other) == host(first));
        let next = others.filter_map(|&other| Some(self.moments[other]?.at)).min()?;
        next.checked_sub(self.moments[first]?.at).filter(|&lead| lead > 0)
    }
}

/// The process of one host that ended before the others, and whether that is beyond the errors.
fn first_of_host(mut ends: Vec<(Moment, usize)>) -> Option<(usize, bool)> {
    ends.sort_compact_by_key(|(moment, index)| (moment.at, *index));
    let (&(first, index), others) = ends.split_first()?;
    let (second, _) = others.first()?;
    let lead = second.at - first.at;
    let is_sure = others.iter().all(|(other, _)| first.ends_before(*other));
    if is_sure {
        return Some((index, true));
    }
    // Processes that are killed together spread evenly over one silence: a gap before the others means something only if it
    // is most of a silence, and larger than the gaps among them.
    let last = others.last().map_or(second.at, |(moment, _)| moment.at);
    let is_apart = lead >= first.error.saturating_add(first.error / 2) && lead > last - second.at;
    (others.len() >= BULK && is_apart && lead >= SAME_US).then_some((index, false))
}
