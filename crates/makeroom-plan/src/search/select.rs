//! Which section to branch on next.
//!
//! A section qualifies if its candidates are flat, that is, have the same floor in all their sections: then nothing can
//! go below them. The lowest section always qualifies. Good choices have few branches, little slack, or were the site
//! of the last conflict.

use std::ops::Range;

use super::state::{CLOSED, State};

/// The criterion for choosing a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preference {
    /// Few branches.
    FewBranches,
    /// Few branches, weighted by how often the section caused a conflict.
    Blame,
    /// Little slack.
    LittleSlack,
    /// The section of the last conflict, then few branches.
    LastConflict,
}

/// Which sections to consider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// At the lowest level.
    Lowest,
    /// At the lowest level, unless some section has a single branch.
    ForcedFirst,
    /// At all levels.
    Anywhere,
}

/// A rule of choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule(pub(super) Reach, pub(super) Preference);

/// The rules that descents alternate between.
pub(super) const RULES: [Rule; 6] = [
    Rule(Reach::Lowest, Preference::FewBranches),
    Rule(Reach::Lowest, Preference::LastConflict),
    Rule(Reach::ForcedFirst, Preference::LastConflict),
    Rule(Reach::ForcedFirst, Preference::LittleSlack),
    Rule(Reach::Lowest, Preference::Blame),
    Rule(Reach::Anywhere, Preference::LastConflict),
];

/// Scratch space for the choice.
pub(super) struct Selector {
    pub(super) last_conflict: usize,
    rising: Vec<u32>,
    next_lower: Vec<u32>,
}

impl Selector {
    pub(super) fn new(sections: usize) -> Self {
        Self { last_conflict: usize::MAX, rising: Vec::new(), next_lower: vec![0; sections] }
    }

    /// The section of `range` to branch on; `None` if all of them are closed.
    pub(super) fn select(&mut self, state: &mut State, range: Range<usize>, rule: Rule) -> Option<usize> {
        let lowest = state.floor[range.clone()].iter().copied().min().unwrap_or(CLOSED);
        if lowest == CLOSED {
            return None;
        }
        let beyond_lowest = rule.0 != Reach::Lowest;
        state.work += range.len() as u64 / 4 + 1;
        if beyond_lowest {
            state.work += range.len() as u64 * 2;
            self.find_next_lower(state, range.clone());
        }
        self.rising.clear();
        let mut best = None;
        let mut best_key = (u64::MAX, u64::MAX, u64::MAX);
        for section in range.clone() {
            let floor = state.floor[section];
            if beyond_lowest {
                pop_not_lower(&mut self.rising, &state.floor, floor);
            }
            if floor == lowest || (beyond_lowest && floor != CLOSED) {
                let slack = state.slack(section);
                let branches = u64::from(state.choices[section]) + u64::from(slack > 0);
                let key = self.key(state, section, branches, slack, rule);
                let allowed = floor == lowest || rule.0 == Reach::Anywhere || branches == 1;
                if key < best_key && allowed {
                    let start = self.rising.last().map_or(range.start, |&lower| lower as usize + 1);
                    let end = self.next_lower[section] as usize;
                    if floor == lowest || lies_flat(state, section, start..end) {
                        (best, best_key) = (Some(section), key);
                    }
                }
            }
            if beyond_lowest {
                self.rising.push(section as u32);
            }
        }
        best
    }

    /// Smaller is better.
    fn key(&self, state: &State, section: usize, branches: u64, slack: u64, rule: Rule) -> (u64, u64, u64) {
        if branches == 1 && rule.0 != Reach::Lowest {
            return (0, 0, state.floor[section]);
        }
        let blame = u64::from(state.blame[section]);
        match rule.1 {
            Preference::FewBranches => (1, branches, u64::MAX - blame),
            Preference::Blame => (1, (branches << 20) / blame, 0),
            Preference::LittleSlack => (1, slack, u64::MAX - blame),
            Preference::LastConflict => (1 + u64::from(section != self.last_conflict), branches, 0),
        }
    }

    /// For each section the next one to the right with a lower floor, or the end of the range.
    fn find_next_lower(&mut self, state: &State, range: Range<usize>) {
        self.rising.clear();
        for section in range.clone().rev() {
            pop_not_lower(&mut self.rising, &state.floor, state.floor[section]);
            self.next_lower[section] = self.rising.last().copied().unwrap_or(range.end as u32);
            self.rising.push(section as u32);
        }
    }
}

fn pop_not_lower(rising: &mut Vec<u32>, floors: &[u64], floor: u64) {
    while rising.last().is_some_and(|&section| floors[section as usize] >= floor) {
        rising.pop();
    }
}

/// Whether the candidates of a section live only in sections whose floor is not lower.
fn lies_flat(state: &State, section: usize, not_lower: Range<usize>) -> bool {
    let floor = state.floor[section];
    state.waiting(section).iter().all(|&buffer| {
        let span = state.instance.span(buffer as usize);
        state.earliest[buffer as usize] != floor
            || (span.start >= not_lower.start && span.end <= not_lower.end)
    })
}
