//! Whole searches for two real training scripts, without a GPU: `traces/fit` has runs of them on an H200 that
//! `--limit 16GiB` made smaller. A run with a batch is its recording, or the nearest one scaled to it; whether it goes
//! through is what the replay says, which is what really happened to those that were recorded.

use std::path::Path;

use makeroom_core::{Action, Bytes, Trace};
use makeroom_explain::Beside;
use makeroom_trace::Input;

use super::*;
use crate::replaying::{fits, outcome};
use crate::scaled::Scaled;

const CARD: Bytes = Bytes::gib(16);
/// What the limit counts for a context, and what cuBLAS and cuDNN took of it.
const COUNTED: Bytes = Bytes::mib(567 + 64);
/// What a run sees beside its tensors: code that was loaded later is not counted by the limit.
const BESIDE: Bytes = Bytes::mib(567 + 64 + 55);

fn trace(model: &str, batch: u64) -> Trace {
    let file = format!("../../traces/fit/{model}_{batch}.room.gz");
    match makeroom_trace::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file)) {
        Ok(Input::Trace(trace)) => trace,
        other => panic!("{model} {batch}: {other:?}"),
    }
}

fn recorded(model: &str, batch: u64) -> Probe {
    let trace = trace(model, batch);
    Probe::new(batch, &trace, trace.device(None).unwrap())
}

/// A script of which some runs are known.
struct Script {
    allocator: AllocatorSpec,
    runs: Vec<Probe>,
}

impl Script {
    fn new(model: &str, batches: &[u64]) -> Self {
        let runs = batches.iter().map(|&batch| recorded(model, batch)).collect();
        Self { allocator: AllocatorSpec::default(), runs }
    }

    fn run(&self, batch: u64) -> Probe {
        let nearest = self.runs.iter().min_by_key(|run| run.batch.abs_diff(batch)).unwrap();
        let beside = Some(Beside { total: Bytes::gib(140), held: BESIDE });
        if nearest.batch == batch {
            return Probe { beside, ..nearest.clone() };
        }
        let smaller = self.runs.iter().filter(|run| run.batch < nearest.batch).cloned();
        let program = Scaled::new(smaller.chain([nearest.clone()]).collect()).unwrap().at(batch);
        Probe { batch, program, beside, ..nearest.clone() }
    }

    fn fits(&self, batch: u64) -> bool {
        fits(&self.allocator, &self.run(batch).program, (CARD - COUNTED).get())
    }

    /// The batches that were run, and what came of it.
    fn find(&self) -> (Vec<u64>, Stop) {
        let bounds = Bounds { first: 4, most: 1 << 20, multiple: 1, runs: 4, card: Some(CARD), margin: None };
        let mut plan = Plan::new(bounds, self.allocator.clone());
        let mut batches = Vec::new();
        loop {
            let batch = match plan.next() {
                Next::Probe(batch) | Next::Confirm(batch) => batch,
                Next::Stop(stop) => return (batches, stop),
            };
            batches.push(batch);
            let run = Box::new(self.run(batch));
            let is_fitting = self.fits(batch);
            plan.ran(batch, if is_fitting { RunOutcome::Ran(run) } else { RunOutcome::Refused(Some(run)) });
            assert!(batches.len() < 9, "{batches:?}");
        }
    }
}

/// The most that PyTorch had taken from the driver, by its own calls.
fn really_reserved(model: &str, batch: u64) -> u64 {
    let (mut reserved, mut most) = (0, 0);
    for event in trace(model, batch).device(None).unwrap().events.iter() {
        match event.action {
            Action::SegmentAlloc => reserved += event.size.get(),
            Action::SegmentFree => reserved -= event.size.get(),
            _ => {}
        }
        most = reserved.max(most);
    }
    most
}

#[test]
fn a_replay_takes_what_the_real_run_took_to_the_byte() {
    // Three that never met the limit, and two that gave their cache back and went on: there others took memory while
    // the context was made, and the limit counted that too.
    let (whole, less) = (CARD - COUNTED, Bytes::mib(15_646));
    for (model, batch, room) in [
        ("conv", 158, whole),
        ("conv", 1000, whole),
        ("varied", 27, whole),
        ("conv", 1900, less),
        ("conv", 2220, less),
    ] {
        let run = recorded(model, batch);
        let outcome = outcome(&AllocatorSpec::default(), &run.program, room.get());
        assert_eq!(outcome.peak_reserved, really_reserved(model, batch), "{model} {batch}");
        assert_eq!(outcome.refusal, None);
    }
}

#[test]
fn shapes_that_vary_are_predicted_to_the_byte_from_smaller_runs() {
    let script = Script::new("varied", &[27, 44]);
    let program = Scaled::new(script.runs).unwrap().at(49);
    let outcome = outcome(&AllocatorSpec::default(), &program, (CARD - COUNTED).get());
    assert_eq!(outcome.peak_reserved, really_reserved("varied", 49));
}

#[test]
fn the_largest_batch_of_shapes_that_vary_is_found_in_four_runs() {
    let script = Script::new("varied", &[27, 44, 49]);
    let (batches, stop) = script.find();
    let Stop::Found(batch) = stop else { panic!("{batches:?} {stop:?}") };
    let beyond = batch + batch.div_ceil(50) + 1;
    assert!(script.fits(batch) && !script.fits(beyond), "{batches:?}");
    assert!(batches.len() <= 4, "{batches:?}");
    // The third is near, and the fourth is the answer.
    assert!(batches[2] * 100 >= batch * 80 && batches[3] == batch, "{batches:?}");
}
