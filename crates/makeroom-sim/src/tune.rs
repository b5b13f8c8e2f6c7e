//! Finds the allocator setting that serves a recording best, by running it under each.
//!
//! The runs are exact, so the answer is too: for this recording. Better means, in this order: it completes in the
//! memory there is, it reserves less, it spends less time in the driver, it needs fewer words. A gain below one per
//! cent is none: the next run will differ by more.

use crate::allocators::{AllocatorSpec, parse};
use crate::comparison::{ComparedRun, Memory, Workload};
use crate::pytorch::Settings;

/// A smaller gain is not worth a setting.
const LEAST_GAIN: f64 = 0.01;
/// Driver time that is worth as much as nothing: less than this is not weighed, in nanoseconds.
const DRIVER_NOISE: u64 = 50_000_000;

/// A setting and what came of it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The settings string, as it goes into the environment; empty for PyTorch's defaults.
    pub settings: String,
    /// The run.
    pub run: ComparedRun,
}

/// What was found.
///
/// All runs that are compared begin with nothing. What is older than the recording lies in each where that run put
/// it, since under another setting it would not lie where it lay.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The run under the settings of the recording, from an empty start like all others.
    pub recorded: ComparedRun,
    /// The run under the settings of the recording from the state in which the recording began, which is what
    /// really happened; only where that came out differently, and never to be compared with the trials.
    pub recorded_in_place: Option<ComparedRun>,
    /// All settings that were tried, the best first.
    pub trials: Vec<Trial>,
    /// Whether the best is worth changing to.
    pub is_worth_it: bool,
}

impl Tuning {
    /// The best setting.
    pub fn best(&self) -> Option<&Trial> {
        self.trials.first()
    }
}

/// The settings worth trying for a workload, all of them known to every release with expandable segments.
pub fn candidates(workload: &Workload, memory: Memory) -> Vec<String> {
    let largest = workload.program.allocations.iter().map(|allocation| allocation.size).max().unwrap_or(0);
    let mut candidates = vec![String::new(), "expandable_segments:True".to_owned()];
    for megabytes in [32_u64, 64, 128, 256, 512, 1024] {
        // Where nothing is that large the limit on splitting decides nothing.
        if largest >= megabytes << 20 || megabytes <= 64 {
            candidates.push(format!("max_split_size_mb:{megabytes}"));
        }
    }
    for divisions in [2, 4, 8, 16] {
        candidates.push(format!("roundup_power2_divisions:{divisions}"));
    }
    for divisions in [2, 4, 8, 16] {
        candidates.push(format!("expandable_segments:True,roundup_power2_divisions:{divisions}"));
    }
    if memory.bytes.is_some() {
        // Garbage is collected only under a limit.
        for threshold in ["0.6", "0.8", "0.9"] {
            candidates.push(format!("garbage_collection_threshold:{threshold}"));
        }
        candidates.push("garbage_collection_threshold:0.8,max_split_size_mb:512".to_owned());
    }
    candidates
}

/// Tries settings on a workload. `progress` is called before each run with its number and how many there are.
pub fn tune(
    workload: &Workload,
    recorded: &Settings,
    memory: Memory,
    candidates: &[String],
    mut progress: impl FnMut(usize, usize),
) -> Tuning {
    let total = candidates.len() + 1;
    progress(0, total);
    let spec = AllocatorSpec::pytorch("recorded", recorded.clone());
    let recorded = workload.run(&spec, memory, false);
    let in_place = workload.run_recorded(&spec, memory, false);
    let recorded_in_place = Some(in_place).filter(|run| run.outcome != recorded.outcome);
    let mut trials: Vec<Trial> = Vec::with_capacity(candidates.len());
    for (index, settings) in candidates.iter().enumerate() {
        progress(index + 1, total);
        // Candidates are written by hand or by `candidates`; one that PyTorch would refuse is no candidate.
        let Ok(spec) = parse(&format!("pytorch:{settings}")) else { continue };
        trials.push(Trial { settings: settings.clone(), run: workload.run(&spec, memory, false) });
    }
    trials.sort_by_key(|trial| rank(&trial.run, trial.settings.matches(':').count()));
    let is_worth_it = trials.first().is_some_and(|best| is_better(&best.run, &recorded));
    Tuning { recorded, recorded_in_place, trials, is_worth_it }
}

/// The order of runs: those that complete first, then by reserved memory in steps of the least gain, driver time
/// and length.
fn rank(run: &ComparedRun, words: usize) -> (bool, u64, u64, usize, u64) {
    let outcome = &run.outcome;
    let step = (outcome.peak_live as f64 * LEAST_GAIN).max(1.0);
    let reserved = (outcome.peak_reserved as f64 / step) as u64;
    (
        outcome.refusal.is_some(),
        reserved,
        outcome.driver_nanoseconds / DRIVER_NOISE,
        words,
        outcome.peak_reserved,
    )
}

fn is_better(best: &ComparedRun, recorded: &ComparedRun) -> bool {
    match (best.outcome.refusal.is_some(), recorded.outcome.refusal.is_some()) {
        (false, true) => true,
        (true, false) => false,
        _ => {
            let (now, before) = (best.outcome.peak_reserved, recorded.outcome.peak_reserved);
            (now as f64) < before as f64 * (1.0 - LEAST_GAIN)
        }
    }
}

#[cfg(test)]
mod tests {
    use makeroom_core::{
        Action, Address, Block, BlockState, Bytes, DeviceTrace, Event, Segment, StackId, Stacks, StreamId,
    };

    use super::*;

    /// A recording that began late: two blocks of 30 MiB lie with a gap of 40 MiB between them.
    fn late() -> DeviceTrace {
        let block = |address: u64, size: u64, state| Block {
            address: Address(address << 20),
            size: Bytes::mib(size),
            requested: Some(Bytes::mib(size)),
            state,
            stack: StackId::NONE,
        };
        let mut device = DeviceTrace::default();
        device.segments.push(Segment {
            address: Address(100 << 20),
            size: Bytes::mib(100),
            blocks: vec![
                block(100, 30, BlockState::Live),
                block(130, 40, BlockState::Free),
                block(170, 30, BlockState::Live),
            ],
            ..Segment::default()
        });
        device.events.push(Event {
            action: Action::Snapshot,
            address: Address(0),
            size: Bytes::ZERO,
            stream: StreamId(0),
            time_us: 0,
            stack: StackId::NONE,
        });
        device
    }

    #[test]
    fn runs_that_are_compared_begin_alike() {
        let workload = Workload::new(&late(), &Stacks::default());
        let settings = [String::new(), "expandable_segments:True".to_owned()];
        let tuning = tune(&workload, &Settings::default(), Memory::default(), &settings, |_, _| {});
        // In its place the older memory takes the gap too; made anew it takes none, under any setting.
        assert_eq!(tuning.recorded.outcome.peak_reserved, 60 << 20);
        let in_place = tuning.recorded_in_place.map(|run| run.outcome.peak_reserved);
        assert_eq!(in_place, Some(100 << 20));
        assert!(!tuning.is_worth_it);
    }

    #[test]
    fn every_candidate_is_known_to_older_releases_too() {
        let workload = Workload::new(&late(), &Stacks::default());
        let candidates = candidates(&workload, Memory::default());
        assert!(candidates.len() >= 12);
        for settings in candidates {
            assert!(parse(&format!("pytorch-2.9:{settings}")).is_ok(), "{settings}");
        }
    }
}
