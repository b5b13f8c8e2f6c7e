//! Which batch to run next.
//!
//! Small runs first: they are short and cannot fail for want of memory. Each tells how far the next can go, even if
//! all of what the last one took should grow with the batch. The last run is the answer itself.
//!
//! ```text
//! first ── at most 60 % of the card, all of it growing ── about half of what is predicted ── what is predicted
//! ```

use makeroom_core::Bytes;
use makeroom_sim::AllocatorSpec;

use crate::budget::{Budget, Margin};
use crate::probe::Probe;
use crate::scaled::Scaled;
use crate::search::largest;

/// The share of an allocator's memory that the second run takes at most.
const SECOND_SHARE: f64 = 0.6;
/// The second run goes no further than so many times the first.
const FURTHEST: u64 = 64;
/// A prediction beyond so many times the largest run gets a run in between.
const FAR: u64 = 2;
/// An answer below what is predicted by less than one part in so many needs no further run.
const CLOSE: u64 = 100;
/// Runs beyond the allowed ones, as long as nothing is found that fits.
const EXTRA_RUNS: usize = 2;
/// After a refusal of what was predicted, this much of it is tried.
const AFTER_REFUSAL_PERCENT: u64 = 97;
/// A refusal below this much of what is predicted says that the prediction is worth nothing.
const FAR_OFF_PERCENT: u64 = 75;
/// Peaks that differ by no more than one part in so many are the same.
const SAME: u64 = 100;
/// Laws that hold for this much of the peak count as exact.
const EXACT_SHARE: f64 = 0.98;

/// What the caller allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The first batch to run.
    pub first: u64,
    /// The largest batch that makes sense.
    pub most: u64,
    /// Batches are multiples of this.
    pub multiple: u64,
    /// How many runs there may be.
    pub runs: usize,
    /// The card that it is for; without it the one that the runs are made on.
    pub card: Option<Bytes>,
    /// What to keep free, as a share of the card; without it as much as the laws call for.
    pub margin: Option<f64>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub enum RunOutcome {
    /// It went through its steps.
    Ran(Box<Probe>),
    /// It was refused memory.
    Refused,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run this batch for what it tells.
    Probe(u64),
    /// Run this batch, which should be the answer.
    Confirm(u64),
    /// Nothing.
    Stop(Stop),
}

/// Why there is nothing more to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// This batch ran, and no larger one is predicted to.
    Found(u64),
    /// The runs are used up: one batch ran, and a larger one is predicted that nobody has tried.
    OutOfRuns {
        /// The largest that ran.
        ran: u64,
        /// What is predicted.
        predicted: u64,
    },
    /// This batch is predicted for a card that is larger than the one here.
    Predicted(u64),
    /// Memory does not depend on the batch.
    NothingGrows,
    /// Memory changed with the batch, and the size of no allocation did: there were more of them, or fewer.
    NoLaw,
    /// Every batch that was tried was refused.
    NothingFits,
    /// No run said how large the card is.
    UnknownCard,
}

/// The runs so far, and what follows from them.
#[derive(Clone, Debug)]
pub struct Plan {
    bounds: Bounds,
    allocator: AllocatorSpec,
    probes: Vec<Probe>,
    /// The smallest batch that was refused.
    refused: Option<u64>,
    refusals: u32,
    runs: usize,
}

/// What is predicted from the runs so far.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The largest batch that fits; `None` if none does.
    pub batch: Option<u64>,
    /// The program at any batch.
    pub scaled: Scaled,
    /// What the allocator may take.
    pub budget: Budget,
}

impl Plan {
    /// No run yet.
    pub fn new(bounds: Bounds, allocator: AllocatorSpec) -> Self {
        let bounds = Bounds { multiple: bounds.multiple.max(1), most: bounds.most.max(1), ..bounds };
        Self { bounds, allocator, probes: Vec::new(), refused: None, refusals: 0, runs: 0 }
    }

    /// A run with a batch is over.
    pub fn ran(&mut self, batch: u64, outcome: RunOutcome) {
        self.runs += 1;
        match outcome {
            RunOutcome::Ran(probe) => self.probes.push(*probe),
            RunOutcome::Refused => {
                self.refusals += 1;
                self.refused = Some(self.refused.map_or(batch, |least| least.min(batch)));
            }
        }
    }

    /// The runs that went through, in the order in which they were made.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// The card that the answer is for.
    pub fn card(&self) -> Option<Bytes> {
        self.bounds.card.or_else(|| self.own_card())
    }

    fn own_card(&self) -> Option<Bytes> {
        self.probes.iter().rev().find_map(|probe| probe.beside).map(|beside| beside.total)
    }

    /// Predicts under another allocator from now on.
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
        let is_close = predicted - known <= predicted / CLOSE;
        let allowed = self.bounds.runs + if self.refused.is_some() { EXTRA_RUNS } else { 0 };
        if is_close {
            return Next::Stop(Stop::Found(known));
        }
        if self.runs >= allowed {
            return Next::Stop(Stop::OutOfRuns { ran: known, predicted });
        }
        let between = self.multiple(predicted / 2);
        let is_far = predicted / FAR >= known && between > known;
        if is_far && self.probes.len() == 2 && self.runs + 2 <= self.bounds.runs {
            return Next::Probe(between);
        }
        Next::Confirm(predicted)
    }

    /// What the runs so far say; `None` without a run, or on a card of unknown size.
    pub fn predict(&self) -> Option<Prediction> {
        let scaled = Scaled::new(self.probes.clone())?;
        let known = scaled.reference().batch;
        let margin = self.bounds.margin.map_or_else(
            || if scaled.exact_share(known) >= EXACT_SHARE { Margin::EXACT } else { Margin::ESTIMATED },
            Margin::asked,
        );
        let budget = Budget::new(self.card()?, &self.probes, margin);
        let batch = self.largest_under(&self.allocator, &scaled, &budget);
        Some(Prediction { batch: batch.map(|batch| self.below_refused(batch)), scaled, budget })
    }

    /// The largest batch with which a program fits under an allocator, as far as the bounds allow.
    pub(crate) fn largest_under(
        &self,
        allocator: &AllocatorSpec,
        scaled: &Scaled,
        budget: &Budget,
    ) -> Option<u64> {
        self.largest_of(scaled.reference().batch, |batch| {
            allocator.run(&scaled.at(batch), Some(budget.allocator(batch))).refusal.is_none()
        })
    }

    /// What is predicted, in the light of what was refused.
    fn below_refused(&self, predicted: u64) -> u64 {
        match self.refused {
            Some(refused) if refused <= percent(predicted, FAR_OFF_PERCENT) => {
                self.multiple(u64::midpoint(self.known(), refused))
            }
            Some(refused) => self.multiple(predicted.min(percent(refused, AFTER_REFUSAL_PERCENT))),
            None => predicted,
        }
    }

    /// The largest batch of which `fits` says so, as far as the bounds allow.
    pub(crate) fn largest_of(&self, hint: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
        let unit = self.bounds.multiple;
        largest(hint / unit, self.bounds.most / unit, |units| fits(units * unit)).map(|units| units * unit)
    }

    /// Whether as much was live at the peak of every run.
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
            // Ever further down: a beginning that is off by much more than a few times must not use up all runs.
            Some(refused) => Next::Probe(self.multiple(refused >> (2 * self.refusals).min(u64::BITS - 1))),
        }
    }

    /// The second batch: as large as is safe even if all memory grows with it; a smaller one where there is no room.
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

    /// A batch as a multiple of what batches have to be multiples of; at least one.
    fn multiple(&self, batch: u64) -> u64 {
        let unit = self.bounds.multiple;
        (batch / unit).max(1) * unit
    }
}

fn percent(batch: u64, percent: u64) -> u64 {
    (u128::from(batch) * u128::from(percent) / 100) as u64
}

#[cfg(test)]
mod tests {
    use makeroom_explain::Beside;

    use super::*;
    use crate::testing::{Shape, keeping, training};

    const BESIDE: Bytes = Bytes::mib(500);

    fn bounds() -> Bounds {
        Bounds { first: 4, most: 1 << 30, multiple: 1, runs: 4, card: None, margin: None }
    }

    /// A machine on which a program can be run with any batch.
    struct Machine {
        shape: Shape,
        card: Bytes,
        allocator: AllocatorSpec,
    }

    impl Machine {
        fn fits(&self, batch: u64) -> bool {
            let program = training(&self.shape, batch).program;
            self.allocator.run(&program, Some((self.card - BESIDE).get())).refusal.is_none()
        }

        fn run(&self, batch: u64) -> RunOutcome {
            if !self.fits(batch) {
                return RunOutcome::Refused;
            }
            let beside = Some(Beside { total: self.card, held: BESIDE });
            RunOutcome::Ran(Box::new(Probe { beside, ..training(&self.shape, batch) }))
        }

        fn truth(&self) -> u64 {
            largest(8, 1 << 20, |batch| self.fits(batch)).unwrap_or(0)
        }

        /// Runs a plan to its end: why it stopped, how many runs that took, and how many of them were refused.
        fn find(&self, bounds: Bounds) -> (Stop, usize, usize) {
            let mut plan = Plan::new(bounds, self.allocator.clone());
            let (mut runs, mut refusals) = (0, 0);
            loop {
                let batch = match plan.next() {
                    Next::Probe(batch) | Next::Confirm(batch) => batch,
                    Next::Stop(stop) => return (stop, runs, refusals),
                };
                let outcome = self.run(batch);
                runs += 1;
                refusals += usize::from(matches!(outcome, RunOutcome::Refused));
                assert!(runs < 20, "it never ends");
                plan.ran(batch, outcome);
            }
        }
    }

    fn machine(shape: Shape, card: Bytes, allocator: &str) -> Machine {
        Machine { shape, card, allocator: makeroom_sim::parse(allocator).unwrap() }
    }

    #[test]
    fn the_largest_batch_is_found_in_four_runs_without_a_refusal() {
        let shapes = [
            Shape::default(),
            Shape { compares_all: true, ..Shape::default() },
            Shape { layers: 30, width: 1 << 16, ..Shape::default() },
        ];
        for shape in shapes {
            for allocator in ["pytorch", "pytorch:expandable_segments:True", "cuda-async", "makeroom"] {
                let machine = machine(shape.clone(), Bytes::gib(24), allocator);
                let (stop, runs, refusals) = machine.find(bounds());
                let Stop::Found(batch) = stop else { panic!("{stop:?}") };
                let truth = machine.truth();
                assert!(machine.fits(batch) && batch * 100 >= truth * 98, "{allocator}: {batch} of {truth}");
                assert!(runs <= 4 && refusals == 0, "{allocator}: {runs} runs, {refusals} refusals");
            }
        }
    }

    #[test]
    fn a_program_that_varies_is_answered_without_a_refusal() {
        let shape = Shape { steps: 8, lengths: vec![64, 100, 80, 57, 93], ..Shape::default() };
        let machine = machine(shape, Bytes::gib(24), "pytorch");
        let (stop, _, _) = machine.find(bounds());
        let Stop::Found(batch) = stop else { panic!("{stop:?}") };
        assert!(batch <= machine.truth() && batch * 100 >= machine.truth() * 95, "{batch}");
    }

    #[test]
    fn too_large_a_beginning_is_survived() {
        let machine = machine(Shape { width: 1 << 18, ..Shape::default() }, Bytes::gib(24), "pytorch");
        let (stop, runs, refusals) = machine.find(Bounds { first: 4096, ..bounds() });
        let Stop::Found(batch) = stop else { panic!("{stop:?}") };
        let truth = machine.truth();
        assert!(batch <= truth && batch * 100 >= truth * 95, "{batch} of {truth}");
        assert!(runs <= 6 && refusals >= 1);
        for first in [1_000_000, u64::from(u32::MAX)] {
            let (stop, runs, _) = machine.find(Bounds { first, most: u64::from(u32::MAX), ..bounds() });
            let ran = match stop {
                Stop::Found(batch) | Stop::OutOfRuns { ran: batch, .. } => batch,
                other => panic!("{first}: {other:?}"),
            };
            assert!(ran <= truth && runs <= 6, "{first}: {ran} of {truth} in {runs}");
        }
    }

    #[test]
    fn a_batch_that_only_was_the_last_to_run_is_not_called_the_largest() {
        let machine = machine(Shape::default(), Bytes::gib(24), "pytorch");
        let (stop, runs, _) = machine.find(Bounds { runs: 2, ..bounds() });
        let Stop::OutOfRuns { ran, predicted } = stop else { panic!("{stop:?}") };
        let truth = machine.truth();
        assert!(
            ran < predicted && predicted <= truth && predicted * 100 >= truth * 97,
            "{ran} {predicted} {truth}"
        );
        assert_eq!(runs, 2);
    }

    #[test]
    fn bounds_are_kept() {
        let machine = machine(Shape::default(), Bytes::gib(24), "pytorch");
        assert_eq!(machine.find(Bounds { most: 37, ..bounds() }).0, Stop::Found(37));
        let (stop, ..) = machine.find(Bounds { multiple: 32, ..bounds() });
        let Stop::Found(batch) = stop else { panic!("{stop:?}") };
        assert!(batch % 32 == 0 && batch <= machine.truth());
    }

    #[test]
    fn what_does_not_grow_and_what_does_not_fit_is_said() {
        let still = Shape { steps: 0, ..Shape::default() };
        assert_eq!(machine(still, Bytes::gib(24), "pytorch").find(bounds()).0, Stop::NothingGrows);
        let huge = Shape { width: 1 << 30, ..Shape::default() };
        assert_eq!(machine(huge, Bytes::gib(24), "pytorch").find(bounds()).0, Stop::NothingFits);
    }

    /// The number of steps as the batch: each keeps something, and nothing is larger than before.
    #[test]
    fn memory_that_grows_by_more_of_the_same_is_not_said_to_be_the_same() {
        let mut plan = Plan::new(bounds(), makeroom_sim::parse("cuda-async").unwrap());
        for batch in [4, 60] {
            let beside = Some(Beside { total: Bytes::gib(24), held: BESIDE });
            plan.ran(batch, RunOutcome::Ran(Box::new(Probe { beside, ..keeping(batch) })));
        }
        assert_eq!(plan.next(), Next::Stop(Stop::NoLaw));
    }

    #[test]
    fn a_larger_card_is_answered_without_a_run_on_it() {
        let small = machine(Shape::default(), Bytes::gib(8), "pytorch");
        let large = machine(Shape::default(), Bytes::gib(80), "pytorch");
        let (stop, ..) = small.find(Bounds { card: Some(Bytes::gib(80)), ..bounds() });
        let Stop::Predicted(batch) = stop else { panic!("{stop:?}") };
        let truth = large.truth();
        assert!(batch <= truth && batch * 100 >= truth * 98, "{batch} of {truth}");
    }
}
