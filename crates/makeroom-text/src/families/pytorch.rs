//! PyTorch's caching allocator, in every wording since 1.0: CUDA, ROCm (HIP), XPU and MPS.
//!
//! | versions | wording |
//! |---|---|
//! | 1.0 – 1.3 | `(GPU 0; 11.17 GiB total capacity; 4.37 GiB already allocated; 388 MiB free; 6.04 GiB cached)`; *cached* is unused memory |
//! | 1.4 – 2.0 | `… 13.91 GiB reserved in total by PyTorch)`; *reserved* includes what is used; from 1.8 `… 4.48 GiB allowed;` |
//! | 2.1 – | `GPU 0 has a total capacty of … of which … is free. Process 23489 has … memory in use. Of the allocated memory … is allocated by PyTorch, and … is reserved by PyTorch but unallocated.` |
//!
//! The newest wording lists every process that NVML shows. Its own it calls *this process*, except in a container
//! where it does not recognise its own number: then it too is *Process N*.

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Captures, Regex, contains_folded, pattern};

use crate::facts::{Allocator, Facts, ListedProcess, Resource};
use crate::family::Family;
use crate::figures::{binary_size, captured_number, captured_size, find_size};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "out of memory. Tried",
        "Tried to allocate",
        "reserved in total by PyTorch",
        "MPS backend out of memory",
        "out of memory. ",
    ],
    read,
};

static REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)Tried to allocate ([\d.]+) ?([KMGTP]?i?B|bytes)"));
static DEVICE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)GPU (\d+)"));
static TOTAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)([\d.]+) ?([KMGTP]?i?B|bytes) total capacity|total capaci?ty of ([\d.]+) ?([KMGTP]?i?B|bytes)",
    )
});
static FREE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)([\d.]+) ?([KMGTP]?i?B|bytes) (?:is )?free\b"));
static ALREADY: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)([\d.]+) ?([KMGTP]?i?B|bytes) (?:already alloc(?:ated|ate|at|a)?\b|is alloc(?:ated|ate|at|a)?\b)",
    )
});
static CACHED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)([\d.]+) ?([KMGTP]?i?B|bytes) (?:cached\b|is reserved by PyTorch but unallocated)")
});
static RESERVED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)([\d.]+) ?([KMGTP]?i?B|bytes) reserved in total by PyTorch"));
static PRIVATE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)with ([\d.]+) ?([KMGTP]?i?B|bytes) allocated in private pools"));
static ALLOWED: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)([\d.]+) ?([KMGTP]?i?B|bytes) allowed;"));
static THIS_PROCESS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)this process has ([\d.]+) ?([KMGTP]?i?B|bytes) memory in use"));
static PROCESS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)Process (\d+) has ([\d.]+) ?([KMGTP]?i?B|bytes) memory in use"));
static MPS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)MPS allocated: ([\d.]+) ?([KMGTP]?i?B|bytes), other allocations: ([\d.]+) ?([KMGTP]?i?B|bytes), max allowed: ([\d.]+) ?([KMGTP]?i?B|bytes)",
    )
});
/// A second error in the same running text ends the first.
static NEXT_ERROR: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)Tried to allocate|out of memory\. "));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = first_error(&passage.flat);
    // TensorFlow's allocator uses the same words.
    if passage.line().contains("bfc_allocator") || passage.line().contains("tensorflow/") {
        return None;
    }
    if let Some(found) = MPS.captures(text) {
        return Some(read_mps(passage, text, &found));
    }
    let total =
        TOTAL.captures(text).and_then(|found| captured_size(&found, 1).or_else(|| captured_size(&found, 3)));
    let mut facts = Facts {
        framework: framework(passage, text),
        allocator: if contains_folded(text, "is allocated by PyTorch")
            || contains_folded(text, "has a total capac")
        {
            Allocator::Torch
        } else {
            Allocator::TorchWithoutExpandable
        },
        line: passage.line_number,
        quote: passage.line().to_owned(),
        resource: Resource::Device,
        device: DEVICE.captures(text).and_then(|found| captured_number(&found, 1)).map(DeviceIndex),
        request: find_size(&REQUEST, text),
        total,
        free: find_size(&FREE, text),
        live: find_size(&ALREADY, text),
        cached: find_size(&CACHED, text),
        reserved: find_size(&RESERVED, text),
        private_pools: find_size(&PRIVATE, text),
        limit: find_size(&ALLOWED, text),
        this_process: find_size(&THIS_PROCESS, text),
        processes: PROCESS
            .captures_iter(text)
            .filter_map(|found| {
                Some(ListedProcess {
                    pid: captured_number(&found, 1)?,
                    bytes: captured_size(&found, 2)?,
                    name: None,
                })
            })
            .collect(),
        ..Facts::default()
    };
    state_cap(&mut facts);
    (facts.request.is_some() || facts.total.is_some() || facts.reserved.is_some()).then_some(facts)
}

/// Intel's driver fails a single allocation above 4 GB by default, whatever is free.
fn state_cap(facts: &mut Facts) {
    const CAP: Bytes = Bytes::gib(4);
    let used = facts.reserved_bytes().or(facts.live).unwrap_or(Bytes::ZERO);
    let Some(request) =
        facts.request.filter(|&request| facts.framework == Framework::PyTorchXpu && request > CAP)
    else {
        return;
    };
    if facts.total.is_some_and(|total| used + request <= total) {
        let summary = format!(
            "A single allocation of {request} was requested; Intel's driver allows 4 GB per allocation by default, and the GPU itself has room."
        );
        facts.state(Cause::ArtificialLimit, Certainty::Possible, summary);
    }
}

/// The text up to where the next error begins.
fn first_error(flat: &str) -> &str {
    let own = NEXT_ERROR.find(flat).map_or(0, |found| found.end());
    // The error's first sentence and its "Tried to allocate" are one.
    let own = NEXT_ERROR
        .find(&flat[own..])
        .filter(|next| flat[own..own + next.start()].trim().is_empty())
        .map_or(own, |next| own + next.end());
    let end = NEXT_ERROR.find(&flat[own..]).map_or(flat.len(), |next| own + next.start());
    &flat[..end]
}

/// Who ran out: `HIP out of memory`, which may stand on the line above the figures, whole or in part.
fn framework(passage: &Passage<'_>, text: &str) -> Framework {
    static WHO: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\b(CUDA|HIP|XPU) out of memory"));
    let above = passage.before().next().map_or("", str::trim);
    let joined = || WHO.captures(&format!("{above} {text}")).map(|found| found[1].to_ascii_uppercase());
    match WHO.captures(text).map(|found| found[1].to_ascii_uppercase()).or_else(joined).as_deref() {
        Some("HIP") => Framework::PyTorchRocm,
        Some("XPU") => Framework::PyTorchXpu,
        _ => Framework::PyTorch,
    }
}

/// On Apple's GPUs the device's memory is a share of the machine's, and the limit is PyTorch's own.
fn read_mps(passage: &Passage<'_>, text: &str, found: &Captures<'_>) -> Facts {
    // Older versions write GB and mean GiB.
    let size = |group: usize| binary_size(found.get(group)?.as_str(), found.get(group + 1)?.as_str());
    let live = size(1);
    let other = size(3).unwrap_or(Bytes::ZERO);
    let allowed = size(5);
    Facts {
        framework: Framework::PyTorchMps,
        allocator: Allocator::Other,
        line: passage.line_number,
        quote: passage.line().to_owned(),
        resource: Resource::Device,
        request: REQUEST.captures(text).and_then(|asked| binary_size(&asked[1], &asked[2])),
        total: allowed,
        live,
        reserved: live,
        cached: Some(Bytes::ZERO),
        // "Other allocations" are this process's too: Metal's own, graphs and buffers outside of PyTorch.
        this_process: live.map(|live| live + other),
        free: match (allowed, live) {
            (Some(allowed), Some(live)) => Some(allowed - live - other),
            _ => None,
        },
        ..Facts::default()
    }
}
