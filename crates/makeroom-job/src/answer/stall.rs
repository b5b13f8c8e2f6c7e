//! The rank that the others waited for, where only collectives that timed out are known.
//!
//! The ranks of a process group call the same collectives in the same order, and each of them numbers its calls. All ranks
//! wait until the last one arrives:
//!
//! ```text
//! a few ranks timed out in another operation of the same number    they took another path through the program
//! a few ranks timed out at a lower number                          they are behind: the others waited for them
//! a few ranks did not time out at all, and show no failure         they most likely never called the collective
//! ```
//!
//! Numbers of different process groups are not compared. Where the lines do not name the group, they may be of several, so
//! the result is only possible. A few: fewer than the others; of two ranks, the one that is behind.

use super::select::Process;
use crate::report::RankFate;
use crate::tables::{Collective, FailureKind};
use makeroom_core::SortCompact as _;
use makeroom_ordered::OrderedMap;

/// How ranks that others waited for are told from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// Another operation, or another number of elements.
    Operation,
    /// A lower number.
    Behind,
    /// No collective that timed out.
    Absent,
}

/// Ranks that others waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stall {
    /// Their indices.
    pub(super) ranks: Vec<usize>,
    pub(super) difference: Difference,
    /// The collective of the first of them.
    pub(super) own: Option<Collective>,
    /// The collective in which the others waited.
    pub(super) others: Collective,
    /// Number of the others.
    pub(super) waiting: usize,
}

impl Stall {
    /// How certain it is that the others waited for these ranks.
    pub(super) fn certainty(&self) -> &'static str {
        // Numbers count only within a group.
        let is_comparable = self.others.group.is_some();
        if self.difference == Difference::Absent || !is_comparable { "possible" } else { "likely" }
    }
}

/// Collectives of one process group, by process.
type Calls<'rows> = Vec<(usize, &'rows Collective)>;

/// The collective in which all ranks that timed out waited, if it is the same.
pub(super) fn common<'rows>(processes: &[Process<'rows>]) -> Option<&'rows Collective> {
    let groups = calls(processes);
    let [calls] = groups.as_slice() else { return None };
    let &(_, first) = calls.first()?;
    let is_same = |(_, call): &(usize, &Collective)| *call == first;
    let timed_out =
        processes.iter().filter(|process| process.reports(FailureKind::CollectiveTimeout)).count();
    (calls.len() > 1 && calls.len() == timed_out && calls.iter().all(is_same)).then_some(first)
}

/// Finds the ranks that others waited for.
pub(super) fn find(processes: &[Process<'_>], fates: &[RankFate]) -> Option<Stall> {
    let groups = calls(processes);
    let differing = groups.iter().find_map(|calls| behind(calls).or_else(|| other_operation(calls)));
    differing.or_else(|| groups.first().and_then(|calls| absent(calls, fates)))
}

/// The collectives that timed out by process group, the largest group first: most ranks wait in it.
fn calls<'rows>(processes: &[Process<'rows>]) -> Vec<Calls<'rows>> {
    let mut groups: OrderedMap<Option<&str>, Calls<'_>> = OrderedMap::new();
    for (index, process) in processes.iter().enumerate() {
        let failures =
            process.failures.iter().filter(|failure| failure.kind == FailureKind::CollectiveTimeout);
        for call in failures.filter_map(|failure| failure.collective.as_ref()) {
            let calls = groups.entry(call.group.as_deref()).or_default();
            // A rank can have two logs.
            if calls.last().is_none_or(|(last, _)| *last != index) {
                calls.push((index, call));
            }
        }
    }
    let mut groups: Vec<Calls<'_>> = groups.into_values().collect();
    groups.sort_compact_by_key(|calls| std::cmp::Reverse(calls.len()));
    groups
}

/// The calls with the lowest number, if these are a few.
fn behind(calls: &Calls<'_>) -> Option<Stall> {
    let lowest = calls.iter().map(|(_, call)| call.number).min()?;
    let (few, others): (Calls<'_>, Calls<'_>) = calls.iter().partition(|(_, call)| call.number == lowest);
    stall(&few, &others, Difference::Behind)
}

/// The calls of another operation or size, if these are a few.
fn other_operation(calls: &Calls<'_>) -> Option<Stall> {
    let mut kinds: OrderedMap<_, Calls<'_>> = OrderedMap::new();
    for &(index, call) in calls {
        kinds.entry((&call.operation, call.elements)).or_default().push((index, call));
    }
    let most = kinds.values().max_by_key(|calls| calls.len())?.clone();
    let is_other = |(index, _): &(usize, &Collective)| most.iter().all(|(known, _)| known != index);
    let few: Calls<'_> = calls.iter().copied().filter(is_other).collect();
    stall(&few, &most, Difference::Operation)
}

fn stall(few: &Calls<'_>, others: &Calls<'_>, difference: Difference) -> Option<Stall> {
    let (&(_, own), &(_, other)) = (few.first()?, others.first()?);
    let ranks: Vec<usize> = few.iter().map(|(index, _)| *index).collect();
    let is_few = few.len() < others.len() || few.len() == others.len() && difference == Difference::Behind;
    is_few.then(|| Stall {
        ranks,
        difference,
        own: Some(own.clone()),
        others: other.clone(),
        waiting: others.len(),
    })
}

/// The ranks that show nothing, if these are a few and all others wait in one collective.
fn absent(calls: &Calls<'_>, fates: &[RankFate]) -> Option<Stall> {
    let &(_, others) = calls.first()?;
    let is_one = calls.iter().all(|(_, call)| call.number == others.number);
    let is_silent = |fate: &RankFate| matches!(fate, RankFate::Unknown | RankFate::Running);
    let ranks: Vec<usize> = (0..fates.len()).filter(|&index| is_silent(&fates[index])).collect();
    let waiting = calls.len();
    let is_few = !ranks.is_empty() && ranks.len() < waiting && ranks.len() + waiting == fates.len();
    (is_one && is_few).then(|| Stall {
        ranks,
        difference: Difference::Absent,
        own: None,
        others: others.clone(),
        waiting,
    })
}
