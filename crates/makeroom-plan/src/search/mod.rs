//! Exact search for a plan within a capacity: depth-first branch and bound with restarts and nogoods.
//!
//! The duration of a depth-first search depends heavily on its first choices, so no descent gets long: each has a node
//! limit that grows slowly, and the next one uses another heuristic and another order. Nogoods are kept.
//! If a descent ends before its limit without a plan, there is none.

mod order;
mod select;
mod state;
mod tree;

use order::Orders;
use select::HEURISTICS;
use state::State;
use tree::{Descent, Tree};

use crate::budget::Meter;
use crate::instance::Instance;

/// Growth factor of the node limit.
const GROWTH: f64 = 1.02;

/// The search tables contain every buffer once per section; with more entries than this, they would cost more memory
/// and time than they are worth.
const MAX_INCIDENCES: u64 = 4_000_000;

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Offsets within the capacity.
    Solved { offsets: Vec<u64> },
    /// These buffers cannot be placed within the capacity.
    Refuted { buffers: Vec<usize> },
    /// Neither a plan nor a proof.
    Undecided,
}

/// A search that can be continued.
pub(crate) struct Search<'a> {
    tree: Tree<'a>,
    orders: Orders,
    limit: f64,
    attempt: usize,
}

/// Whether an instance is small enough for the search.
pub(crate) fn is_searchable(instance: &Instance) -> bool {
    let incidences: u64 =
        instance.first.iter().zip(&instance.end).map(|(&first, &end)| u64::from(end - first)).sum();
    incidences <= MAX_INCIDENCES
}

impl<'a> Search<'a> {
    /// Prepares a search for a plan of at most `capacity` units. No section's load may exceed that.
    pub(crate) fn new(instance: &'a Instance, capacity: u64, seed: u64) -> Self {
        // A peak above the sum of all sizes is never needed; this keeps sums small.
        let stacked: u64 =
            instance.size.iter().zip(&instance.alignment).map(|(size, align)| size + align).sum();
        Self {
            tree: Tree::new(State::new(instance, capacity.min(stacked))),
            orders: Orders::new(seed),
            limit: instance.len() as f64 + 250.0,
            attempt: 0,
        }
    }

    /// Continues the search for about this many steps.
    pub(crate) fn run(&mut self, steps: u64, meter: &mut Meter) -> Verdict {
        let last_step = meter.spent().saturating_add(steps);
        while meter.spent() < last_step && meter.has_budget() {
            let heuristic = HEURISTICS[self.attempt % HEURISTICS.len()];
            self.orders.arrange(&self.tree.state, self.attempt / HEURISTICS.len(), &mut self.tree.rank);
            match self.tree.descend(heuristic, self.limit as u64, meter) {
                Descent::Solved => return Verdict::Solved { offsets: self.tree.state.earliest.clone() },
                Descent::Exhausted { first, end } => {
                    let instance = self.tree.state.instance;
                    return Verdict::Refuted { buffers: instance.starting_in(first..end).collect() };
                }
                Descent::Limited => {
                    self.limit *= GROWTH;
                    self.attempt += 1;
                }
            }
        }
        Verdict::Undecided
    }
}
