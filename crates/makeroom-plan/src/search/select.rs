//! Which section to branch on next: the variable-ordering heuristics that descents alternate between.
//!
//! Only sections at the lowest level qualify: nothing can go below their candidates.

use std::ops::Range;

use super::state::{CLOSED, State};

/// How to choose among the lowest sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heuristic {
    /// Smallest domain: few branches (fail first), ties by conflict weight.
    SmallestDomain,
    /// The section of the last conflict, then few branches.
    LastConflict,
    /// Few branches, divided by the number of conflicts of the section (dom/wdeg).
    ConflictWeight,
}

/// In the order in which descents use them.
pub(super) const HEURISTICS: [Heuristic; 3] =
    [Heuristic::SmallestDomain, Heuristic::LastConflict, Heuristic::ConflictWeight];

/// The lowest section of `range` to branch on; `None` if all of them are closed.
pub(super) fn select(
    state: &mut State,
    range: Range<usize>,
    heuristic: Heuristic,
    last_conflict: usize,
) -> Option<usize> {
    state.work += range.len() as u64 / 4 + 1;
    let lowest = state.floor[range.clone()].iter().copied().min().filter(|&floor| floor != CLOSED)?;
    let sections = range.filter(|&section| state.floor[section] == lowest);
    sections.min_by_key(|&section| key(state, section, heuristic, last_conflict))
}

/// Smaller is better.
fn key(state: &State, section: usize, heuristic: Heuristic, last_conflict: usize) -> (u64, u64) {
    let branches = u64::from(state.choices[section]) + u64::from(state.slack(section) > 0);
    let weight = u64::from(state.conflicts[section]);
    match heuristic {
        Heuristic::SmallestDomain => (branches, u64::MAX - weight),
        Heuristic::LastConflict => (u64::from(section != last_conflict), branches),
        Heuristic::ConflictWeight => ((branches << 20) / weight, 0),
    }
}
