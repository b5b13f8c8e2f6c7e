//! Finds the best allocator settings for a recording, by running it under each candidate.
//!
//! The runs are exact, so the result is exact for this recording. Settings are ranked by these criteria, in order: the
//! run completes in the available memory, reserves less, spends less time in the driver, and needs a shorter settings
//! string. A gain below one percent does not count: the next run will differ by more.

use crate::allocators::{AllocatorSpec, parse};
use crate::comparison::{ComparedRun, Memory, Workload};
use crate::pytorch::Settings;

/// The smallest gain that is worth a setting.
const LEAST_GAIN: f64 = 0.01;
/// Driver time below this many nanoseconds is ignored.
const DRIVER_NOISE: u64 = 50_000_000;

/// A setting and its result.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The settings string for the environment; empty for PyTorch's defaults.
    pub settings: String,
    /// The run.
    pub run: ComparedRun,
}

/// The result of tuning.
///
/// All compared runs start empty. Each one places memory older than the recording itself, because under another setting
/// it would not be at its recorded addresses.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The run under the recording's settings, starting empty like all others.
    pub recorded: ComparedRun,
    /// The run under the recording's settings from the state in which the recording began, which is what really
    /// happened. Present only if its result differs, and not comparable with the trials.
    pub recorded_in_place: Option<ComparedRun>,
    /// All settings that were tried, best first.
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

/// The settings worth trying for a workload, all of which are supported by every release with expandable segments.
pub fn candidates(workload: &Workload, memory: Memory) -> Vec<String> {
    let largest = workload.program.allocations.iter().map(|allocation| allocation.size).max().unwrap_or(0);
    let mut candidates = vec![String::new(), "expandable_segments:True".to_owned()];
    for megabytes in [32_u64, 64, 128, 256, 512, 1024] {
        // If no block is that large, the limit on splitting has no effect.
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
        // Garbage collection needs a limit.
        for threshold in ["0.6", "0.8", "0.9"] {
            candidates.push(format!("garbage_collection_threshold:{threshold}"));
        }
        candidates.push("garbage_collection_threshold:0.8,max_split_size_mb:512".to_owned());
    }
    candidates
}

/// Tries settings on a workload. `progress` is called before each run with its number and the total.
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
        // Candidates are written by hand or by `candidates`; skip invalid ones.
        let Ok(spec) = parse(&format!("pytorch:{settings}")) else { continue };
        trials.push(Trial { settings: settings.clone(), run: workload.run(&spec, memory, false) });
    }
    trials.sort_by_key(|trial| rank(&trial.run, trial.settings.matches(':').count()));
    let is_worth_it = trials.first().is_some_and(|best| is_better(&best.run, &recorded));
    Tuning { recorded, recorded_in_place, trials, is_worth_it }
}

/// The order of runs: completed ones first, then by reserved memory in steps of the smallest gain, driver time and
/// length.
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

    /// A recording that began late: two blocks of 30 MiB with a gap of 40 MiB between them.
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
        // At its recorded place, the older memory includes the gap; newly allocated, it has no gap under any setting.
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
