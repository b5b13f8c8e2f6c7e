//! TensorFlow and XLA asking the driver for the card: the pool they take up front, and the context before it.
//!
//! | versions | wording |
//! |---|---|
//! | all | `failed to allocate 3.81G (4092461056 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY` |
//! | newest XLA | `failed to allocate 3.81GiB (4092461056 bytes) from device: RESOURCE_EXHAUSTED: …` |
//! | all | `failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory reported: 8513978368` |
//!
//! By default both frameworks take nearly all that is free before the program asks for anything. When the driver
//! refuses, they ask again for nine tenths, and again: a falling series of refusals is that loop, and so is one
//! refusal in each of several processes. The figure is theirs, not the program's.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_explain::thresholds::ABSURD;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use super::bfc_dump::framework;
use super::handles::is_handle_failure;
use super::start::Start;
use crate::facts::{Allocator, Facts, Resource, Severity};
use crate::family::Family;
use crate::figures::captured_number;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &["bytes) from", "failed call to cuDevicePrimaryCtxRetain", "failed call to cuCtxCreate"],
    read,
};

/// The share the frameworks fall back to after each refusal is 0.9; sizes are rounded to blocks.
const RETRY_SHARE: std::ops::RangeInclusive<f64> = 0.895..=0.905;
/// A refusal this near to all that was free at the start is the pool; TensorFlow leaves 5 % or 300 MiB.
const POOL_OF_FREE: f64 = 0.8;
/// The same, measured against the whole device: what the desktop and contexts hold is not free.
const POOL_OF_TOTAL: f64 = 0.7;

static REFUSED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)failed to allocate [\d.]+ ?[KMGT]?(?:i?B)? \((\d+) bytes\) from\b"));
static CONTEXT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"failed call to (?:cuDevicePrimaryCtxRetain|cuCtxCreate): \w*OUT_OF_MEMORY(?:.*?total memory reported: (\d+))?",
    )
});
static INFORMATION: LazyLock<Regex> = LazyLock::new(|| pattern(r"^I(?:\d{4})? "));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    if let Some(found) = CONTEXT.captures(&passage.flat) {
        return Some(read_context(passage, captured_number(&found, 1)));
    }
    let attempts = Attempts::read(passage)?;
    let start = Start::read(passage);
    let mut facts = Facts {
        allocator: Allocator::Bfc,
        request: Some(attempts.first),
        total: start.total,
        ..Facts::new(framework(passage), Resource::Device, passage)
    };
    start.state(&mut facts);
    attempts.state(start, &mut facts);
    let is_decided = facts.statements.iter().any(|statement| statement.certainty >= Certainty::Likely);
    if !is_decided && INFORMATION.is_match(passage.line()) {
        facts.severity = Severity::Warning;
    }
    Some(facts)
}

/// A process that gets no context holds nothing yet.
fn read_context(passage: &Passage<'_>, total: Option<u64>) -> Facts {
    let mut facts = Facts {
        // Where the driver could not tell, TensorFlow prints a negative number as an unsigned one.
        total: total.map(Bytes::new).filter(|&total| total < ABSURD),
        ..Facts::new(framework(passage), Resource::Device, passage)
    };
    facts.state(
        Cause::OtherProcesses,
        Certainty::Likely,
        "The driver had no memory for a context. This process holds nothing yet, so other processes hold the GPU's memory.",
    );
    facts
}

/// The refusals of the driver that a passage shows.
pub(super) struct Attempts {
    /// The first size requested.
    first: Bytes,
    /// One size is nine tenths of the one before.
    is_falling: bool,
    /// Another process failed at the same time, with another size: each takes what the others left. The
    /// same size in all ranks is a buffer of the program, on a card of each rank's own.
    is_several_processes: bool,
    /// A CUDA library could not start next to the pool.
    is_library_starved: bool,
}

impl Attempts {
    /// Reads them from the anchor's line on; `None` where there are none.
    pub(super) fn read(passage: &Passage<'_>) -> Option<Self> {
        let sizes: Vec<Bytes> = passage.onward().filter_map(refused).collect();
        let first = *sizes.first()?;
        let is_falling = sizes.windows(2).any(|pair| RETRY_SHARE.contains(&pair[1].share_of(pair[0])));
        Some(Self {
            first,
            is_falling,
            is_several_processes: passage.others().filter_map(refused).any(|other| other != first),
            is_library_starved: passage.all().any(is_handle_failure),
        })
    }

    /// States that the framework was taking the card, as far as the attempts show it.
    pub(super) fn state(&self, start: Start, facts: &mut Facts) {
        let first = self.first;
        let is_share =
            |whole: Option<Bytes>, share: f64| whole.is_some_and(|whole| first.share_of(whole) >= share);
        let (certainty, summary) = if self.is_falling {
            (
                Certainty::Likely,
                format!(
                    "The framework tried to preallocate {first}, failed, and retried with nine tenths of it: another process already holds part of the GPU's memory."
                ),
            )
        } else if self.is_several_processes {
            (
                Certainty::Likely,
                format!(
                    "Several processes preallocate GPU memory at the same time, this one {first}: each tries to take nearly all of it."
                ),
            )
        } else if is_share(start.free, POOL_OF_FREE) || is_share(start.total, POOL_OF_TOTAL) {
            (
                Certainty::Likely,
                format!(
                    "The framework tried to preallocate {first}, nearly all that was free when it started, and failed."
                ),
            )
        } else {
            (
                Certainty::Possible,
                format!(
                    "{first} for the framework's pool failed; by default, it preallocates nearly all of the GPU's memory."
                ),
            )
        };
        if self.is_library_starved && certainty == Certainty::Possible {
            facts.lead(Cause::Preallocation, summary);
        } else {
            facts.state(Cause::Preallocation, certainty, summary);
        }
    }
}

fn refused(line: &str) -> Option<Bytes> {
    captured_number(&REFUSED.captures(line)?, 1).map(Bytes::new)
}

#[cfg(test)]
mod tests {
    use makeroom_core::Bytes;
    use makeroom_explain::{Cause, Certainty};

    use crate::facts::Severity;
    use crate::find::facts_in;

    fn refusal(bytes: u64) -> String {
        format!(
            "2022-03-01 10:00:00.000001: I tensorflow/stream_executor/cuda/cuda_driver.cc:739] failed to allocate 1.00G ({bytes} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
        )
    }

    #[test]
    fn a_falling_series_is_the_pool_being_taken() {
        let text = [8_000_000_000, 7_200_000_000, 6_480_000_000].map(refusal).concat();
        let facts = facts_in(&text).unwrap();
        assert_eq!((facts.framework_id(), facts.request), ("tensorflow", Some(Bytes::new(8_000_000_000))));
        assert_eq!(facts.severity, Severity::Failure);
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::Preallocation, Certainty::Likely)
        );
    }

    #[test]
    fn two_workers_at_once_are_two_pools() {
        let text =
            format!("(worker pid=7) {}(worker pid=9) {}", refusal(5_000_000_000), refusal(4_000_000_000));
        let facts = facts_in(&text).unwrap();
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::Preallocation, Certainty::Likely)
        );
        let ranks = format!("[rank0]: {}[rank1]: {}", refusal(500_000_000), refusal(500_000_000));
        assert_eq!(facts_in(&ranks).unwrap().statements[0].certainty, Certainty::Possible);
    }

    #[test]
    fn nearly_all_that_was_free_is_the_pool() {
        let text = format!("Total memory: 4.00GiB\nFree memory: 3.60GiB\n{}", refusal(3_400_000_000));
        let facts = facts_in(&text).unwrap();
        assert_eq!(facts.total, Some(Bytes::gib(4)));
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::Preallocation, Certainty::Likely)
        );
    }

    #[test]
    fn a_card_that_was_full_at_the_start_belongs_to_others() {
        let text = format!("totalMemory: 8.00GiB freeMemory: 180.00MiB\n{}", refusal(188_000_000));
        assert_eq!(facts_in(&text).unwrap().statements[0].cause, Cause::OtherProcesses);
    }

    #[test]
    fn one_refusal_alone_is_only_possible_and_a_warning() {
        let facts = facts_in(&refusal(600_000_000)).unwrap();
        assert_eq!(facts.severity, Severity::Warning);
        assert_eq!(facts.statements[0].certainty, Certainty::Possible);
    }

    #[test]
    fn a_library_that_could_not_start_points_to_the_pool() {
        let text = format!(
            "E tensorflow/stream_executor/cuda/cuda_blas.cc:238] failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED\n{}",
            refusal(40_000_000).replace(": I ", ": E ")
        );
        let stated = &facts_in(&text).unwrap().statements[0];
        assert!(stated.leads && stated.cause == Cause::Preallocation);
    }

    #[test]
    fn no_context_means_another_process_has_the_card() {
        let text = "InternalError: failed initializing StreamExecutor for CUDA device ordinal 0: Internal: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory reported: 8000000000";
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.total, Some(Bytes::new(8_000_000_000)));
        assert_eq!(facts.statements[0].cause, Cause::OtherProcesses);
        let wrapped = facts_in(&text.replace("8000000000", "18446744073709551615")).unwrap();
        assert_eq!(wrapped.total, None);
    }
}
