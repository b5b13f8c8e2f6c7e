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
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use super::device::Attempts;
use super::pool_dump::Dump;
use super::start::Start;
use super::xla;
use crate::facts::{Allocator, Facts, Resource, Severity};
use crate::family::Family;
use crate::figures::{captured_number, captured_size, find_size};
use crate::log::Passage;

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
pub(super) const SMALLEST_CARD: Bytes = Bytes::gib(2);

pub(super) static COMPLAINT: LazyLock<Regex> = LazyLock::new(|| {
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
    fn the_dump_is_read() {
        let (facts, cause, _) = first(&dump(10 << 30, (10 << 30) - (100 << 20)));
        assert_eq!(facts.request, Some(Bytes::mib(512)));
        assert_eq!(facts.device, Some(DeviceIndex(1)));
        assert_eq!((facts.reserved, facts.live), (Some(Bytes::gib(10)), Some(Bytes::mib(10 * 1024 - 100))));
        assert_eq!(facts.largest_free, Some(Bytes::mib(1)));
        assert_eq!((facts.limit, cause), (None, Cause::LiveDataFillsDevice));
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
