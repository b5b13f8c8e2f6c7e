//! The figures of the pool in a dump of the allocator of TensorFlow and XLA, and what they decide.
//!
//! XLA prints the dump to stderr. The Python module has the same figures from `device.memory_stats()`, but reads them after
//! the failure, when the failed computation has freed its buffers; it says so ([`LATE`]). Then the most that was ever in use
//! limits what can have been in use at the failure.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use super::bfc_dump::{COMPLAINT, SMALLEST_CARD};
use crate::facts::Facts;
use crate::figures::{captured_number, find_size};
use crate::log::Passage;

/// The heading of statistics that were read after the failure.
const LATE: &str = "Stats after the failure:";
/// A pool is full if this share is in use, whatever the request.
const FULL: f64 = 0.95;
/// A pool of which this share is in use after a failure was full before it.
const NEARLY_FULL: f64 = 0.9;
/// A pool below this share of a known card was made small.
const WHOLE_CARD: f64 = 0.8;
/// The driver gives out no less than this at once: a pool that lacks less of its limit has all of it.
const LEAST_REGION: Bytes = Bytes::mib(2);
/// A free run of this share of the map is an empty pool.
const EMPTY_MAP: usize = 80;

static STATISTIC: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^[\s>]*(Limit|InUse|MaxInUse|LargestFreeBlock):\s+(\d+)\s*$"));
static SUM: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Sum Total of in-use chunks: ([\d.]+) ?([KMGT]?i?B)"));
static POOL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"total_region_allocated_bytes_: (\d+) memory_limit_: (\d+)"));
static FREE_BLOCK: LazyLock<Regex> = LazyLock::new(|| pattern(r"\] Free +at .*?of size (\d+)"));
static MAP: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:^|\] )([*x_]{90,100})$"));

/// What a dump says about the pool.
#[derive(Debug, Default)]
pub(super) struct Dump {
    pub(super) limit: Option<Bytes>,
    in_use: Option<Bytes>,
    /// The most that was ever in use.
    most: Option<Bytes>,
    /// The figures were read after the failure, when memory may have been freed.
    is_late: bool,
    taken: Option<Bytes>,
    largest_free: Option<Bytes>,
    map: Option<String>,
    is_empty: bool,
}

impl Dump {
    /// The dump that follows a complaint. The next complaint has its own dump.
    pub(super) fn below(passage: &Passage<'_>) -> Self {
        let is_own = |(index, line): &(usize, &str)| *index == 0 || !COMPLAINT.is_match(line);
        Self::read(passage.onward().enumerate().take_while(is_own).map(|(_, line)| line))
    }

    /// The dump that stands above the error of the operation that needed the memory.
    pub(super) fn above(passage: &Passage<'_>) -> Self {
        let mut lines: Vec<&str> = passage.before().take_while(|line| !COMPLAINT.is_match(line)).collect();
        lines.reverse();
        Self::read(lines.into_iter())
    }

    fn read<'log>(lines: impl Iterator<Item = &'log str>) -> Self {
        let mut dump = Self::default();
        for line in lines {
            if let Some(found) = STATISTIC.captures(line) {
                let figure = captured_number(&found, 2).map(Bytes::new);
                match &found[1] {
                    "Limit" => dump.limit = figure.filter(|limit| !limit.is_zero()),
                    "InUse" => dump.in_use = figure,
                    "MaxInUse" => dump.most = figure,
                    _ => dump.largest_free = dump.largest_free.max(figure.filter(|block| !block.is_zero())),
                }
            } else if let Some(in_use) = find_size(&SUM, line) {
                dump.in_use = dump.in_use.or(Some(in_use));
            } else if let Some(found) = POOL.captures(line) {
                dump.taken = captured_number(&found, 1).map(Bytes::new);
            } else if let Some(found) = FREE_BLOCK.captures(line) {
                dump.largest_free = dump.largest_free.max(captured_number(&found, 1).map(Bytes::new));
            } else if let Some(found) = MAP.captures(line) {
                dump.map = Some(found[1].to_owned());
            }
            dump.is_late |= line.contains(LATE);
            dump.is_empty |= line.contains("<allocator contains no memory>");
        }
        dump
    }

    /// Puts the figures of a pool of host memory into the facts.
    pub(super) fn fill(&self, facts: &mut Facts) {
        facts.limit = self.limit;
        facts.live = self.in_use;
    }

    /// Puts the dump's figures into the facts, and what they decide about the pool.
    pub(super) fn state(&self, is_driver_empty: bool, facts: &mut Facts) {
        facts.live = self.in_use;
        facts.largest_free = self.largest_free;
        facts.reserved = self.taken.or(self.limit.filter(|_| !is_driver_empty));
        if self.is_empty {
            facts.live = Some(Bytes::ZERO);
            facts.reserved = Some(Bytes::ZERO);
            state_empty(facts);
        } else if let (Some(limit), Some(in_use)) = (self.limit, self.in_use) {
            self.state_pool(limit, in_use, facts);
        } else if let Some(map) = self.map.as_deref().filter(|_| !is_driver_empty) {
            state_map(map, facts);
        }
    }

    /// The most that can have been in use when the request failed. In a dump of the allocator that is what was in use.
    fn in_use_at_failure(&self, in_use: Bytes) -> Bytes {
        self.most.filter(|_| self.is_late).map_or(in_use, |most| most.max(in_use))
    }

    /// Whether the pool could serve the request from what is free now.
    fn would_succeed_now(&self, limit: Bytes, in_use: Bytes, request: Bytes) -> bool {
        in_use + request <= limit && self.largest_free.is_none_or(|largest| largest >= request)
    }

    fn state_pool(&self, limit: Bytes, in_use: Bytes, facts: &mut Facts) {
        let request = facts.request.unwrap_or(Bytes::ZERO);
        let most = self.in_use_at_failure(in_use);
        let is_full = most + request > limit || most.share_of(limit) >= FULL;
        let is_small = match facts.total {
            Some(total) => limit.share_of(total) < WHOLE_CARD,
            None => limit < SMALLEST_CARD,
        };
        if is_full && is_small {
            facts.limit = Some(limit);
            let used = if most > in_use {
                format!("up to {most} of that was")
            } else {
                format!("{most} of that is")
            };
            facts.state(
                Cause::ArtificialLimit,
                Certainty::Likely,
                format!(
                    "The framework's limit is {limit}, far less than the memory of a GPU, and {used} in use."
                ),
            );
        } else if let Some(taken) = self
            .taken
            .filter(|&taken| taken + request <= limit && limit - taken >= LEAST_REGION && !request.is_zero())
        {
            facts.state(
                Cause::OtherProcesses,
                Certainty::Likely,
                format!("The framework may use up to {limit} and holds {taken}, but allocating {request} more failed: another process took the rest after the framework started."),
            );
        } else if request > limit {
            facts.state(
                Cause::RequestExceedsDevice,
                Certainty::Likely,
                format!(
                    "A single allocation of {request} was requested; the framework's whole pool is {limit}."
                ),
            );
        } else if most > in_use && self.would_succeed_now(limit, in_use, request) {
            self.state_late(limit, in_use, most, facts);
        } else if is_full {
            facts.state(
                Cause::LiveDataFillsDevice,
                Certainty::Likely,
                format!("{in_use} of the framework's pool of {limit} is in use; the request does not fit."),
            );
        }
    }

    /// What figures show with which the request would succeed, because memory was freed since it failed: the memory in use
    /// then was at most `most`, and the pool could not grow.
    fn state_late(&self, limit: Bytes, in_use: Bytes, most: Bytes, facts: &mut Facts) {
        let Some(request) = facts.request else { return };
        // The free blocks are those of now: they do not show what the request met.
        facts.largest_free = None;
        if most + request > limit {
            facts.reserved = None;
            let summary = format!(
                "Up to {most} of the framework's {limit} pool was in use, so {request} more did not fit. {in_use} is still in use after the failure."
            );
            // A failed computation frees its other buffers, often of the same size. If more is free, the peak may be older.
            if in_use + request + request > limit || in_use.share_of(limit) >= NEARLY_FULL {
                facts.state(Cause::LiveDataFillsDevice, Certainty::Likely, summary);
            } else {
                facts.lead(Cause::LiveDataFillsDevice, summary);
            }
        } else if self.taken.is_some() {
            facts.state(
                Cause::Fragmentation,
                Certainty::Likely,
                format!(
                    "{request} failed although at most {most} of the framework's pool of {limit} was in use: free memory was fragmented, and no free block was large enough."
                ),
            );
        }
    }
}

/// The framework holds nothing: it is not what fills the card.
fn state_empty(facts: &mut Facts) {
    let asked =
        facts.request.map_or("An allocation".to_owned(), |request| format!("An allocation of {request}"));
    let certainty = if facts.request.is_some_and(|request| request < SMALLEST_CARD) {
        Certainty::Likely
    } else {
        Certainty::Possible
    };
    facts.state(
        Cause::OtherProcesses,
        certainty,
        format!(
            "{asked} failed while the framework's pool was empty: other processes hold the GPU's memory."
        ),
    );
}

/// The map alone gives shares, no sizes: it decides only where the pool is all in use or all free.
fn state_map(map: &str, facts: &mut Facts) {
    let longest_free = map.split(['*', 'x']).map(str::len).max().unwrap_or(0);
    if longest_free == 0 {
        facts.state(
            Cause::LiveDataFillsDevice,
            Certainty::Likely,
            "The allocator's map shows every part of its pool in use.",
        );
    } else if let Some(request) = facts.request.filter(|_| longest_free >= EMPTY_MAP) {
        facts.state(
            Cause::RequestExceedsDevice,
            Certainty::Likely,
            format!("A single allocation of {request} was requested; the allocator's map shows {longest_free} % of its pool free in one block, which was not enough."),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    fn dump(limit: u64, in_use: u64) -> String {
        format!(
            "W tensorflow/core/common_runtime/bfc_allocator.cc:427] Allocator (GPU_1_bfc) ran out of memory trying to allocate 512.00MiB (rounded to 536870912)requested by op conv\nI tensorflow/core/common_runtime/bfc_allocator.cc:905] InUse at 0x7f00 of size 4096 next 2\nI tensorflow/core/common_runtime/bfc_allocator.cc:905] Free  at 0x7f10 of size 1048576 next 3\nI tensorflow/core/common_runtime/bfc_allocator.cc:929] Stats: \nLimit:                 {limit}\nInUse:                 {in_use}\nMaxInUse:              {in_use}\nNumAllocs:             77\n"
        )
    }

    fn first(text: &str) -> (Facts, Cause, Certainty) {
        let facts = facts_in(text).unwrap();
        let statement = facts.statements[0].clone();
        (facts, statement.cause, statement.certainty)
    }

    #[test]
    fn a_pool_that_lacks_a_few_bytes_of_its_limit_is_full() {
        let (limit, request) = (3u64 << 30, "512.00MiB (rounded to 536870912)");
        let pool = format!(
            "total_region_allocated_bytes_: {} memory_limit_: {limit} available bytes: 200\nStats: ",
            limit - 200
        );
        let text = dump(limit, limit - 200).replace(request, "4B (rounded to 16)").replace("Stats: ", &pool);
        assert_eq!(first(&text).1, Cause::LiveDataFillsDevice);
    }

    #[test]
    fn a_pool_far_below_the_card_is_a_limit() {
        let (facts, cause, certainty) = first(&dump(1 << 30, 1 << 30));
        assert_eq!((cause, certainty), (Cause::ArtificialLimit, Certainty::Likely));
        assert_eq!(facts.limit, Some(Bytes::gib(1)));
        let with_card = format!("totalMemory: 16.00GiB freeMemory: 15.90GiB\n{}", dump(4 << 30, 4 << 30));
        assert_eq!(first(&with_card).1, Cause::ArtificialLimit);
    }

    #[test]
    fn a_pool_made_small_by_others_is_theirs() {
        let text = format!("totalMemory: 16.00GiB freeMemory: 1.10GiB\n{}", dump(1 << 30, 1 << 30));
        assert_eq!(first(&text).1, Cause::OtherProcesses);
    }

    #[test]
    fn room_inside_the_pool_is_left_to_the_judge() {
        let facts = facts_in(&dump(10 << 30, 6 << 30)).unwrap();
        assert!(facts.statements.is_empty());
        assert_eq!(facts.cached_bytes(), Some(Bytes::gib(4)));
    }

    #[test]
    fn a_pool_that_could_not_grow_is_squeezed_by_others() {
        let text = dump(10 << 30, 3 << 30).replace(
            "Stats: ",
            "total_region_allocated_bytes_: 4294967296 memory_limit_: 10737418240 available bytes: 6442450944 curr_region_allocation_bytes_: 8589934592",
        );
        let (facts, cause, _) = first(&text);
        assert_eq!((facts.reserved, cause), (Some(Bytes::gib(4)), Cause::OtherProcesses));
    }

    #[test]
    fn the_map_decides_only_at_its_ends() {
        let complaint = "W bfc_allocator.cc:497] Allocator (GPU_0_bfc) ran out of memory trying to allocate 40.00GiB (rounded to 42949672960)requested by op \nW bfc_allocator.cc:508] ";
        assert_eq!(
            first(&format!("{complaint}{}{}", "*".repeat(5), "_".repeat(95))).1,
            Cause::RequestExceedsDevice
        );
        assert_eq!(first(&format!("{complaint}{}", "*".repeat(100))).1, Cause::LiveDataFillsDevice);
        assert!(facts_in(&format!("{complaint}{}", "*_".repeat(50))).unwrap().statements.is_empty());
        assert_eq!(
            first("Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.0KiB\n<allocator contains no memory>").1,
            Cause::OtherProcesses
        );
    }

    /// Figures in GiB that were read after 4 GiB failed; the pool may grow to 72 GiB.
    fn late(in_use: u64, most: u64, pool: u64) -> Facts {
        let [in_use, most, pool, limit] = [in_use, most, pool, 72].map(|gib| gib << 30);
        let text = format!(
            "Allocator (GPU_0_bfc) ran out of memory trying to allocate 4294967296B (rounded to 4294967296)\ntotal_region_allocated_bytes_: {pool} memory_limit_: {limit}\n{LATE}\nLimit: {limit}\nInUse: {in_use}\nMaxInUse: {most}\nLargestFreeBlock: {}\n",
            6u64 << 30
        );
        facts_in(&text).unwrap()
    }

    #[test]
    fn the_most_in_use_decides_if_figures_are_late() {
        let decided = |in_use, most, pool| {
            let facts = late(in_use, most, pool);
            let statement = facts.statements.first()?;
            Some((statement.cause, statement.certainty))
        };
        // The failed computation freed 4 GiB, for which the request would now succeed.
        assert_eq!(decided(66, 70, 72), Some((Cause::LiveDataFillsDevice, Certainty::Likely)));
        // Much was freed: the peak may be older than the failure.
        assert_eq!(decided(20, 70, 72), Some((Cause::LiveDataFillsDevice, Certainty::Possible)));
        assert_eq!(decided(20, 60, 72), Some((Cause::Fragmentation, Certainty::Likely)));
        assert_eq!(decided(20, 60, 61), Some((Cause::OtherProcesses, Certainty::Likely)));
        let facts = late(66, 70, 72);
        assert_eq!((facts.live, facts.cached_bytes()), (Some(Bytes::gib(66)), None));
    }
}
