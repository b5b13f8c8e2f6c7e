//! Complete searches for programs with known answers.

use makeroom_explain::DeviceOverhead;

use super::*;
use crate::probe::Probe;
use crate::search::largest;
use crate::testing::{Shape, keeping, training};

const OVERHEAD: Bytes = Bytes::mib(500);

fn bounds() -> Bounds {
    Bounds { first: 4, most: 1 << 30, multiple: 1, runs: 4, card: None, margin: None }
}

/// A machine that can run a program with any batch.
struct Machine {
    shape: Shape,
    card: Bytes,
    allocator: AllocatorSpec,
}

impl Machine {
    fn fits(&self, batch: u64) -> bool {
        let program = training(&self.shape, batch).program;
        self.allocator.run(&program, Some((self.card - OVERHEAD).get())).refusal.is_none()
    }

    fn run(&self, batch: u64) -> RunOutcome {
        if !self.fits(batch) {
            return RunOutcome::Refused(None);
        }
        let overhead = Some(DeviceOverhead {
            total: self.card,
            held: OVERHEAD,
            uncertain: Bytes::ZERO,
            is_settled: true,
            is_own: false,
        });
        RunOutcome::Ran(Box::new(Probe { overhead, ..training(&self.shape, batch) }))
    }

    fn truth(&self) -> u64 {
        largest(8, 1 << 20, |batch| self.fits(batch)).unwrap_or(0)
    }

    /// Runs a plan to its end. Returns why it stopped, the number of runs, and how many of them failed.
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
            refusals += usize::from(matches!(outcome, RunOutcome::Refused(_)));
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

/// The batch is the number of steps: each keeps an allocation, and none is larger than before.
#[test]
fn memory_that_grows_by_more_of_the_same_is_not_said_to_be_the_same() {
    let mut plan = Plan::new(bounds(), makeroom_sim::parse("cuda-async").unwrap());
    for batch in [4, 60] {
        let overhead = Some(DeviceOverhead {
            total: Bytes::gib(24),
            held: OVERHEAD,
            uncertain: Bytes::ZERO,
            is_settled: true,
            is_own: false,
        });
        plan.ran(batch, RunOutcome::Ran(Box::new(Probe { overhead, ..keeping(batch) })));
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
