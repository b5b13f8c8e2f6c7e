//! PyTorch on the `cudaMallocAsync` backend: a block of labelled lines.

use std::sync::LazyLock;

use makeroom_core::{DeviceIndex, Framework};
use makeroom_explain::thresholds::ABSURD;
use makeroom_search::{Regex, pattern};

use crate::facts::{Allocator, Facts, Resource};
use crate::family::Family;
use crate::figures::{captured_number, find_size};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family { anchors: &["would exceed allowed memory"], read };

static DEVICE: LazyLock<Regex> = LazyLock::new(|| pattern(r"Allocation on device (\d+)"));
static LIVE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Currently allocated ?: ([\d.]+) ?([KMGTP]?i?B|bytes)"));
static REQUEST: LazyLock<Regex> = LazyLock::new(|| pattern(r"Requested ?: ([\d.]+) ?([KMGTP]?i?B|bytes)"));
static TOTAL: LazyLock<Regex> = LazyLock::new(|| pattern(r"Device limit ?: ([\d.]+) ?([KMGTP]?i?B|bytes)"));
static FREE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Free \(according to CUDA\) ?: ([\d.]+) ?([KMGTP]?i?B|bytes)"));
static LIMIT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"PyTorch limit \(set by user-supplied memory fraction\) ?: ([\d.]+) ?([KMGTP]?i?B|bytes)")
});

#[expect(clippy::unnecessary_wraps, reason = "the signature of a family")]
fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = passage.flat.as_str();
    let total = find_size(&TOTAL, text);
    // Without a limit the backend prints the largest number there is.
    let limit = find_size(&LIMIT, text).filter(|&limit| limit < total.unwrap_or(ABSURD));
    Some(Facts {
        framework: Framework::PyTorch,
        allocator: Allocator::TorchAsync,
        line: passage.line_number,
        quote: passage.line().to_owned(),
        resource: Resource::Device,
        device: DEVICE.captures(text).and_then(|found| captured_number(&found, 1)).map(DeviceIndex),
        request: find_size(&REQUEST, text),
        total,
        free: find_size(&FREE, text),
        live: find_size(&LIVE, text),
        limit,
        ..Facts::default()
    })
}
