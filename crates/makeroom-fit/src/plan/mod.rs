//! Chooses which batch to run next.
//!
//! Small runs come first: they are short and do not run out of memory. Each shows how far the next can go even if all
//! of its memory grows with the batch. The third is close to the prediction, so that little is left to extrapolate:
//! libraries choose other algorithms with other batches, and there they have made their choice. The last run is the
//! answer itself.
//!
//! ```text
//! first ── at most 60 % of the GPU, if all memory grows ── close to the prediction ── the prediction
//! ```

mod predict;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
mod types;

use makeroom_core::Bytes;
use makeroom_sim::AllocatorSpec;

use crate::budget::{Budget, Margin};
use crate::probe::Probe;
use crate::replaying::fits;

pub use types::{Bounds, Next, Prediction, RunOutcome, Stop};

/// The maximum share of the allocator's memory for the second run.
const SECOND_SHARE: f64 = 0.6;
/// The second batch is at most this many times the first.
const FURTHEST: u64 = 64;
/// The third batch, in percent of the prediction.
const NEAR_PERCENT: u64 = 88;
/// It is skipped if the second batch was at least this close to the prediction.
const NEAR_ENOUGH_PERCENT: u64 = 80;
/// If the prediction is at most 1/100 larger than a batch that ran, that batch is the answer.
const CLOSE: u64 = 100;
/// The same with 1/20 if no runs are left: report a batch that ran instead of one that was not tried.
const CLOSE_AT_END: u64 = 20;
/// Extra runs if too few completed for a prediction.
const EXTRA_RUNS: usize = 2;
/// Number of completed runs that are enough for a prediction: if it then fails, a smaller one is reported without a
/// run.
const ENOUGH_PROBES: usize = 3;
/// Peaks that differ by at most 1/100 count as equal.
const SAME: u64 = 100;

/// The runs so far, and their consequences.
#[derive(Clone, Debug)]
pub struct Plan {
    bounds: Bounds,
    allocator: AllocatorSpec,
    probes: Vec<Probe>,
    /// The smallest batch that failed.
    refused: Option<u64>,
    /// The recordings of runs that failed.
    refused_probes: Vec<Probe>,
    refusals: u32,
    runs: usize,
}

impl Plan {
    /// A plan without runs.
    pub fn new(bounds: Bounds, allocator: AllocatorSpec) -> Self {
        let bounds = Bounds { multiple: bounds.multiple.max(1), most: bounds.most.max(1), ..bounds };
        Self {
            bounds,
            allocator,
            probes: Vec::new(),
            refused: None,
            refused_probes: Vec::new(),
            refusals: 0,
            runs: 0,
        }
    }

    /// Adds the outcome of a run.
    pub fn ran(&mut self, batch: u64, outcome: RunOutcome) {
        self.runs += 1;
        match outcome {
            RunOutcome::Ran(probe) => self.probes.push(*probe),
            RunOutcome::Refused(probe) => {
                self.refusals += 1;
                self.refused_probes.extend(probe.map(|probe| *probe));
                self.refused = Some(self.refused.map_or(batch, |least| least.min(batch)));
            }
        }
    }

    /// The runs that completed, in order.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// Memory of the GPU that the answer is for.
    pub fn card(&self) -> Option<Bytes> {
        self.bounds.card.or_else(|| self.own_card())
    }

    fn own_card(&self) -> Option<Bytes> {
        self.probes.iter().rev().find_map(|probe| probe.overhead).map(|overhead| overhead.total)
    }

    /// Changes the allocator of the predictions.
    pub fn set_allocator(&mut self, allocator: AllocatorSpec) {
        self.allocator = allocator;
    }

    /// The allocator that predictions are made under.
    pub fn allocator(&self) -> &AllocatorSpec {
        &self.allocator
    }

    /// What to do next.
    pub fn next(&self) -> Next {
        let Some(last) = self.probes.last() else { return self.begin() };
        let Some(card) = self.card() else { return Next::Stop(Stop::UnknownCard) };
        if self.probes.len() == 1
            && self.runs < self.bounds.runs
            && let Some(second) = self.second(last, card)
        {
            return Next::Probe(second);
        }
        let Some(prediction) = self.predict() else { return Next::Stop(Stop::UnknownCard) };
        if self.probes.len() > 1 && !prediction.scaled.grows() {
            return Next::Stop(if self.took_the_same() { Stop::NothingGrows } else { Stop::NoLaw });
        }
        let known = self.known();
        let Some(predicted) = prediction.batch.filter(|&batch| batch > known) else {
            return Next::Stop(Stop::Found(known));
        };
        if self.own_card().is_some_and(|own| card > own) {
            return Next::Stop(Stop::Predicted(predicted));
        }
        if predicted - known <= predicted / CLOSE {
            return Next::Stop(Stop::Found(known));
        }
        let is_lost = self.refused.is_some() && self.probes.len() < ENOUGH_PROBES;
        if self.runs >= self.bounds.runs + if is_lost { EXTRA_RUNS } else { 0 } {
            let is_close =
                self.probes.len() >= ENOUGH_PROBES && predicted - known <= predicted / CLOSE_AT_END;
            return Next::Stop(if is_close {
                Stop::Found(known)
            } else {
                Stop::OutOfRuns { ran: known, predicted }
            });
        }
        if let Some(near) = self.near(predicted, known, &prediction) {
            return Next::Probe(near);
        }
        Next::Confirm(predicted)
    }

    /// Whether all runs had the same peak.
    fn took_the_same(&self) -> bool {
        let peaks = || self.probes.iter().map(|probe| probe.program.peak_live());
        let (least, most) = (peaks().min().unwrap_or(0), peaks().max().unwrap_or(0));
        most - least <= most / SAME
    }

    /// The largest batch that ran.
    fn known(&self) -> u64 {
        self.probes.iter().map(|probe| probe.batch).max().unwrap_or(0)
    }

    fn begin(&self) -> Next {
        match self.refused {
            None => Next::Probe(self.multiple(self.bounds.first.min(self.bounds.most))),
            Some(refused)
                if refused <= self.bounds.multiple || self.runs >= self.bounds.runs + EXTRA_RUNS =>
            {
                Next::Stop(Stop::NothingFits)
            }
            // Decrease exponentially: a first batch that is far too large must not use up all runs.
            Some(refused) => Next::Probe(self.multiple(refused >> (2 * self.refusals).min(u64::BITS - 1))),
        }
    }

    /// The second batch: as large as is safe even if all memory grows with it; a smaller one if there is not enough
    /// memory.
    fn second(&self, first: &Probe, card: Bytes) -> Option<u64> {
        let budget = Budget::new(card, &self.probes, Margin::ESTIMATED).allocator(first.batch) as f64;
        let safe =
            (first.batch as f64 * SECOND_SHARE * budget / first.program.peak_live().max(1) as f64) as u64;
        let below = self.refused.map_or(u64::MAX, |refused| refused - 1).min(self.bounds.most);
        let furthest = first.batch.saturating_mul(FURTHEST).min(below);
        let larger = self.multiple(safe.min(furthest));
        if larger > first.batch {
            return Some(larger);
        }
        let smaller = self.multiple(first.batch / 2);
        if smaller < first.batch {
            return Some(smaller);
        }
        let next = first.batch + self.bounds.multiple;
        (next <= below).then_some(next)
    }

    /// The third batch, if a run is left for it in addition to the final one. By the prediction, no allocation in it
    /// fails: a program whose allocations fail behaves differently, which shows less.
    fn near(&self, predicted: u64, known: u64, prediction: &Prediction) -> Option<u64> {
        let is_room = self.probes.len() == 2 && self.runs + 2 <= self.bounds.runs;
        // If the limit on the batch fits anyway, there is no need for precision.
        let is_wanted = predicted < self.bounds.most && known < percent(predicted, NEAR_ENOUGH_PERCENT);
        if !is_room || !is_wanted {
            return None;
        }
        let Prediction { scaled, budget, .. } = prediction;
        let unrefused =
            self.largest_of(known, |batch| fits(&self.allocator, &scaled.at(batch), budget.allocator(batch)));
        let near = percent(predicted, NEAR_PERCENT).min(unrefused.unwrap_or(u64::MAX));
        Some(self.multiple(near)).filter(|&near| near > known)
    }

    /// Rounds a batch down to a multiple of the unit; at least one unit.
    fn multiple(&self, batch: u64) -> u64 {
        let unit = self.bounds.multiple;
        (batch / unit).max(1) * unit
    }
}

fn percent(batch: u64, percent: u64) -> u64 {
    (u128::from(batch) * u128::from(percent) / 100) as u64
}
