//! The allocator of TensorFlow and XLA (best fit with coalescing): its complaint and its dump of the pool.
//!
//! | part | wording |
//! |---|---|
//! | complaint, TensorFlow 1 | `Ran out of memory trying to allocate 64.0KiB.  See logs for memory state.` |
//! | complaint, later | `Allocator (GPU_0_bfc) ran out of memory trying to allocate 32.00MiB (rounded to 33554688) requested by op …` |
//! | warning | `… with freed_by_count=0. The caller indicates that this is not a failure, …` |
//! | request | `Bin for 381.47MiB was 256.00MiB, Chunk State:`, then `Next region of size 72080128` for each part of the pool |
//! | blocks | `Free  at 0x7f… of size 917504 next 12`, in a line each |
//! | pool | `total_region_allocated_bytes_: 7365066752 memory_limit_: 7365066752 available bytes: 0 …` |
//! | sum | `Sum Total of in-use chunks: 6.66GiB` |
//! | statistics | `Limit:`, `InUse:`, `MaxInUse:`, `LargestFreeBlock:`, each with bytes |
//! | map | 100 characters: `*` in use, `x` rounding, `_` free; or `<allocator contains no memory>` |
//!
//! `Limit` is what the allocator may take: nearly all that was free when the framework started, unless a fraction
//! or a limit was set.

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex, Framework};

use super::device::Attempts;
use super::start::Start;
use super::xla;
use crate::text::facts::{Allocator, Facts, Resource, Severity};
use crate::text::family::Family;
use crate::text::figures::{captured_number, captured_size, find_size, pattern};
use crate::text::log::Passage;
use crate::text::pattern::Regex;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "ran out of memory trying to allocate",
        "Sum Total of in-use chunks",
        "total_region_allocated_bytes_",
        "Bin for ",
    ],
    read,
};

/// No card that these frameworks run on is this small: a pool below it was made small, or others hold the card.
const SMALLEST_CARD: Bytes = Bytes::gib(2);
/// A pool below this share of a known card was made small.
const WHOLE_CARD: f64 = 0.8;
/// The driver gives out no less than this at once: a pool that lacks less of its limit has all of it.
const LEAST_REGION: Bytes = Bytes::mib(2);
/// A free run of this share of the map is an empty pool.
const EMPTY_MAP: usize = 80;

static COMPLAINT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:Allocator \((\w+)\) )?ran out of memory trying to allocate ([\d.]+) ?([KMGT]?i?B)(?: \(rounded to (\d+)\))?",
    )
});
/// The request, in a dump whose complaint is cut off.
static BIN: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)Bin for ([\d.]+) ?([KMGT]?i?B) was "));
static REGION: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)Next region of size (\d+)"));
/// A complaint that TensorFlow itself calls no failure; the paste may end in the middle of it.
static NOT_A_FAILURE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)with freed|this is not a failure|caller indicates"));
/// Words of a user whose program continued.
static RUNS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(?:runs? fine|keeps running|still (?:runs|works|trains))\b"));
static DEVICE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)GPU_(\d+)"));
static STATISTIC: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^[\s>]*(Limit|InUse|LargestFreeBlock):\s+(\d+)\s*$"));
static SUM: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Sum Total of in-use chunks: ([\d.]+) ?([KMGT]?i?B)"));
static POOL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"total_region_allocated_bytes_: (\d+) memory_limit_: (\d+)"));
static FREE_BLOCK: LazyLock<Regex> = LazyLock::new(|| pattern(r"\] Free +at .*?of size (\d+)"));
static MAP: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:^|\] )([*x_]{90,100})$"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let complaint = COMPLAINT.captures(&passage.flat);
    let allocator = complaint.as_ref().and_then(|found| found.get(1)).map_or("", |name| name.as_str());
    let request = complaint
        .as_ref()
        .and_then(|found| captured_number(found, 4).map(Bytes::new).or_else(|| captured_size(found, 2)))
        .or_else(|| find_size(&BIN, passage.line()));
    let mut facts = Facts {
        allocator: Allocator::Bfc,
        device: DEVICE.captures(allocator).and_then(|found| captured_number(&found, 1)).map(DeviceIndex),
        request,
        ..Facts::new(framework(passage), Resource::Device, passage)
    };
    if is_host(allocator) {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            format!("The allocator that ran out, {allocator}, is the one for pinned host memory. The GPU's memory is not involved."),
        );
        Dump::below(passage).fill(&mut facts);
        return Some(facts);
    }
    // A dump does not name its allocator; where the text names only the one for host memory, it is that one's.
    let names = |mark: &str| passage.all().any(|line| line.contains(mark));
    if allocator.is_empty() && names("_host_bfc") && !names("GPU_") {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Likely,
            "TensorFlow's pool of pinned host memory is full (TF_GPU_HOST_MEM_LIMIT_IN_MB, 64 GiB by default). The GPU's memory is not involved.",
        );
        Dump::below(passage).fill(&mut facts);
        return Some(facts);
    }
    let own = complaint.as_ref().and_then(|found| found.get(0)).map_or("", |own| &passage.flat[own.end()..]);
    let own = own.split("bfc_allocator.cc").next().unwrap_or(own);
    let is_alone = !passage.flat.contains("bfc_allocator") && !passage.flat.contains("See logs");
    if NOT_A_FAILURE.is_match(own) || (is_alone && passage.all().any(|line| RUNS.is_match(line))) {
        facts.severity = Severity::Warning;
    }
    let start = Start::read(passage);
    facts.total = start.total;
    let attempts = Attempts::read(passage);
    // Others who held the card from the start explain a small pool better than a limit does.
    start.state(&mut facts);
    let dump = Dump::below(passage);
    dump.state(attempts.is_some(), &mut facts);
    if let Some(attempts) = attempts.filter(|_| facts.statements.is_empty()) {
        attempts.state(start, &mut facts);
    }
    if facts.statements.is_empty() && complaint.is_none() {
        state_regions(passage, &mut facts);
    }
    xla::state_budget(passage, &mut facts);
    xla::state_plan(passage, dump.limit, &mut facts);
    let is_bin = BIN.is_match(passage.line());
    (complaint.is_some() || is_bin || facts.live.is_some() || facts.reserved.is_some()).then_some(facts)
}

/// A dump without its complaint: the regions are the pool, and one smaller than the request shows that the framework
/// got little of the card.
fn state_regions(passage: &Passage<'_>, facts: &mut Facts) {
    let regions = passage.onward().filter_map(|line| captured_number(&REGION.captures(line)?, 1));
    let pool: Bytes = regions.map(Bytes::new).sum();
    let Some(request) = facts.request.filter(|_| !pool.is_zero()) else { return };
    facts.reserved = Some(pool);
    if pool < request && pool < SMALLEST_CARD {
        facts.lead(
            Cause::Preallocation,
            format!("TensorFlow's whole pool is {pool}, less than the {request} requested: the GPU's memory was already in use when it started, often by another TensorFlow process that preallocated it."),
        );
    }
}

/// Which framework a log of this allocator is from. TensorFlow keeps its copy of XLA under another name.
pub(super) fn framework(passage: &Passage<'_>) -> Framework {
    let is_jax = passage.all().any(|line| {
        ["external/xla/", "external/org_tensorflow/", "pjrt_", "jax"].iter().any(|mark| line.contains(mark))
    });
    if is_jax { Framework::Jax } else { Framework::TensorFlow }
}

/// Whether an allocator of this name gives out host memory.
pub(super) fn is_host(allocator: &str) -> bool {
    allocator.contains("host") || allocator.to_ascii_lowercase().ends_with("cpu")
}

/// What a dump says about the pool.
#[derive(Debug, Default)]
pub(super) struct Dump {
    limit: Option<Bytes>,
    in_use: Option<Bytes>,
    taken: Option<Bytes>,
    largest_free: Option<Bytes>,
    map: Option<String>,
    is_empty: bool,
}

impl Dump {
    /// The dump that follows a complaint. The next complaint has its own dump.
    fn below(passage: &Passage<'_>) -> Self {
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
            dump.is_empty |= line.contains("<allocator contains no memory>");
        }
        dump
    }

    /// Puts the figures of a pool of host memory into the facts.
    fn fill(&self, facts: &mut Facts) {
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

    fn state_pool(&self, limit: Bytes, in_use: Bytes, facts: &mut Facts) {
        let request = facts.request.unwrap_or(Bytes::ZERO);
        let is_full = in_use + request > limit || in_use.share_of(limit) >= 0.95;
        let is_small = match facts.total {
            Some(total) => limit.share_of(total) < WHOLE_CARD,
            None => limit < SMALLEST_CARD,
        };
        if is_full && is_small {
            facts.limit = Some(limit);
            facts.state(
                Cause::ArtificialLimit,
                Certainty::Likely,
                format!(
                    "The framework may use at most {limit}, far less than a GPU has, and {in_use} of that is in use."
                ),
            );
        } else if let Some(taken) = self
            .taken
            .filter(|&taken| taken + request <= limit && limit - taken >= LEAST_REGION && !request.is_zero())
        {
            facts.state(
                Cause::OtherProcesses,
                Certainty::Likely,
                format!("The framework may use up to {limit} and holds {taken}; {request} more failed, so another process took the rest after the framework started."),
            );
        } else if request > limit {
            facts.state(
                Cause::RequestExceedsDevice,
                Certainty::Likely,
                format!(
                    "A single allocation of {request} was requested; the framework's whole pool is {limit}."
                ),
            );
        } else if is_full {
            facts.state(
                Cause::LiveDataFillsDevice,
                Certainty::Likely,
                format!("{in_use} of the framework's pool of {limit} is in use; the request does not fit."),
            );
        }
    }
}

/// The framework holds nothing: it is not what fills the card.
fn state_empty(facts: &mut Facts) {
    let asked = facts.request.map_or("Memory".to_owned(), |request| request.to_string());
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
    use crate::text::find::facts_in;

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
    fn the_dump_is_read() {
        let (facts, cause, _) = first(&dump(10 << 30, (10 << 30) - (100 << 20)));
        assert_eq!(facts.request, Some(Bytes::mib(512)));
        assert_eq!(facts.device, Some(DeviceIndex(1)));
        assert_eq!((facts.reserved, facts.live), (Some(Bytes::gib(10)), Some(Bytes::mib(10 * 1024 - 100))));
        assert_eq!(facts.largest_free, Some(Bytes::mib(1)));
        assert_eq!((facts.limit, cause), (None, Cause::LiveDataFillsDevice));
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
    fn a_dump_of_thousands_of_blocks_is_read_to_its_end() {
        let block =
            "I tensorflow/core/common_runtime/bfc_allocator.cc:905] InUse at 0x7f00 of size 4096 next 2\n";
        let free = block.replace("InUse", "Free ");
        let text = dump(10 << 30, 10 << 30).replace(block, &format!("{block}{free}").repeat(5000));
        assert_eq!(first(&text).0.live, Some(Bytes::gib(10)));
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

    #[test]
    fn a_warning_is_a_warning() {
        let text = "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.20GiB with freed_by_count=0. The caller indicates that this is not a failure, but may mean that there could be performance gains.";
        assert_eq!(facts_in(text).unwrap().severity, Severity::Warning);
    }

    #[test]
    fn a_warning_is_one_in_any_case_and_when_cut_off() {
        for text in [
            "Ran out of memory trying to allocate 791.02MiB. The caller indicates that this is not a failure, but may mean that there could be performance gains if more memory is available.",
            "W bfc_allocator.cc:239] Allocator (GPU_0_bfc) ran out of memory trying to allocate 104.88MiB with freed_",
            "it prints `ran out of memory trying to allocate 300.50MiB`\nthe script keeps running though",
        ] {
            assert_eq!(facts_in(text).unwrap().severity, Severity::Warning, "{text}");
        }
        let failed = "Ran out of memory trying to allocate 64.0KiB.  See logs for memory state.";
        assert_eq!(facts_in(failed).unwrap().severity, Severity::Failure);
    }

    #[test]
    fn a_dump_without_its_complaint() {
        let text = "I bfc_allocator.cc:780] Bin for 256.00MiB was 256.00MiB, Chunk State: \nI bfc_allocator.cc:793] Next region of size 67108864\nI bfc_allocator.cc:800] Free  at 0x7f00 next 1 of size 67107584";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.request, facts.reserved), (Some(Bytes::mib(256)), Some(Bytes::mib(64))));
        assert!(facts.statements[0].leads && facts.statements[0].cause == Cause::Preallocation);
        let large = facts_in(&text.replace("67108864", "8589934592")).unwrap();
        assert!(large.statements.is_empty());
    }

    #[test]
    fn a_dump_of_the_host_pool() {
        let text = format!(
            "the pool of cuda_host_bfc is full\n{}",
            dump(64 << 30, 64 << 30).split_once('\n').unwrap().1
        );
        let text = text.replace("Stats: ", "Sum Total of in-use chunks: 64.00GiB\nStats: ");
        let (facts, cause, _) = first(&text);
        assert_eq!((facts.resource, cause), (Resource::Host, Cause::HostMemory));
    }

    #[test]
    fn a_host_allocator_is_about_host_memory() {
        let (facts, cause, _) =
            first("Allocator (gpu_host_bfc) ran out of memory trying to allocate 2.20GiB");
        assert_eq!((facts.resource, cause), (Resource::Host, Cause::HostMemory));
    }
}
