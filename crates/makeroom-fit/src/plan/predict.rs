//! The largest batch according to the runs so far.

use makeroom_sim::AllocatorSpec;

use super::{Plan, Prediction, percent};
use crate::budget::{Budget, Margin};
use crate::replaying::{fits, most_refused, refused_last};
use crate::scaled::Scaled;
use crate::search::{edge, largest};

/// If laws are exact for this share of the peak, the prediction counts as exact.
const EXACT_SHARE: f64 = 0.98;
/// After a prediction failed, try this much of it, which is within the tolerance of an answer.
const AFTER_REFUSAL_PERCENT: u64 = 98;
/// If a program completes only by doing without some allocations, its behavior is not exactly known: aim at this much
/// of the edge.
const RAGGED_PERCENT: u64 = 99;
/// The lowest aim, in percent of the edge.
const LEAST_AIM_PERCENT: u64 = 97;
/// If a run fails below this much of the prediction, the prediction is worthless.
const FAR_OFF_PERCENT: u64 = 75;

impl Plan {
    /// The prediction from the runs so far; `None` without a run, or if the size of the GPU is unknown.
    pub fn predict(&self) -> Option<Prediction> {
        let scaled = Scaled::with_refused(self.probes.clone(), &self.refused_probes)?;
        let budget = match self.bounds.margin {
            Some(share) => self.budget(Margin::asked(share))?,
            None => self.budget(self.margin(&scaled)?)?,
        };
        let batch = self.aim_under(&scaled, &budget);
        Some(Prediction { batch: batch.map(|batch| self.below_refused(batch)), scaled, budget })
    }

    /// The largest batch with which a program fits under an allocator, within the bounds.
    pub(crate) fn largest_under(
        &self,
        allocator: &AllocatorSpec,
        scaled: &Scaled,
        budget: &Budget,
    ) -> Option<u64> {
        self.largest_of(scaled.reference().batch, |batch| {
            scaled.fits(allocator, batch, budget.allocator(batch))
        })
    }

    /// The largest batch for which `fits` is true, within the bounds.
    pub(crate) fn largest_of(&self, hint: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
        let unit = self.bounds.multiple;
        largest(hint / unit, self.bounds.most / unit, |units| fits(units * unit)).map(|units| units * unit)
    }

    /// The batch to aim at under the program's own allocator: the edge of what fits, or a little less if it is
    /// ragged.
    fn aim_under(&self, scaled: &Scaled, budget: &Budget) -> Option<u64> {
        let unit = self.bounds.multiple;
        let is_fitting =
            |units: u64| scaled.fits(&self.allocator, units * unit, budget.allocator(units * unit));
        let edge = edge(scaled.reference().batch / unit, self.bounds.most / unit, is_fitting)?;
        let batch = edge * unit;
        if fits(&self.allocator, &scaled.at(batch), budget.allocator(batch)) {
            return Some(batch);
        }
        let (aim, least) = (percent(edge, RAGGED_PERCENT), percent(edge, LEAST_AIM_PERCENT));
        (least..=aim).rev().find(|&units| is_fitting(units)).or(Some(edge)).map(|units| units * unit)
    }

    /// The budget, from measurements and failures: if a replay of a failed run would have succeeded, it had less
    /// memory than expected.
    fn budget(&self, margin: Margin) -> Option<Budget> {
        let budget = Budget::new(self.card()?, &self.probes, margin);
        let missing = self.refused_probes.iter().filter_map(|probe| {
            let room = budget.allocator(probe.batch) + budget.margin.get();
            let refused = most_refused(&self.allocator, &refused_last(&probe.program), room)?;
            Some(room - refused)
        });
        let missing = missing.max().unwrap_or(0);
        Some(budget.with_less(missing))
    }

    /// The margin: small if laws are exact; otherwise from the error with which the smaller runs predict the largest
    /// one, scaled to the distance of the answer.
    fn margin(&self, scaled: &Scaled) -> Option<Margin> {
        let last = scaled.reference();
        if scaled.exact_share(last.batch) >= EXACT_SHARE {
            return Some(Margin::EXACT);
        }
        let smaller: Vec<_> = self.probes.iter().filter(|probe| probe.batch < last.batch).cloned().collect();
        let Some(before) = Scaled::new(smaller).filter(|_| self.probes.len() > 2) else {
            return Some(Margin::ESTIMATED);
        };
        let (real, told) = (scaled.needed(last.batch), before.needed(last.batch));
        let error = real.abs_diff(told) as f64 / real.max(1) as f64;
        let target = self.aim_under(scaled, &self.budget(Margin::EXACT)?).unwrap_or(last.batch);
        let told_over = (last.batch - before.reference().batch).max(1) as f64;
        let share = error * target.saturating_sub(last.batch) as f64 / told_over;
        Some(Margin::EXACT.wider(share))
    }

    /// Corrects the prediction for runs that failed.
    fn below_refused(&self, predicted: u64) -> u64 {
        match self.refused {
            Some(refused) if refused <= percent(predicted, FAR_OFF_PERCENT) => {
                self.multiple(u64::midpoint(self.known(), refused))
            }
            Some(refused) => self.multiple(predicted.min(percent(refused, AFTER_REFUSAL_PERCENT))),
            None => predicted,
        }
    }
}
