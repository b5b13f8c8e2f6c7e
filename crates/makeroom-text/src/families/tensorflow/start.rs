//! What TensorFlow says about a GPU when it starts: its memory, what of it is free, and what TensorFlow will take.
//!
//! | versions | wording |
//! |---|---|
//! | – 1.3 | `Total memory: 7.92GiB`, `Free memory: 7.81GiB`, each on a separate line |
//! | 1.4 – 1.13 | `totalMemory: 11.17GiB freeMemory: 11.10GiB` |
//! | 1.5 – 2.3 | `Created TensorFlow device (/job:localhost/…/device:GPU:0 with 10410 MB memory)` |
//! | 2.4 – | `Created device /job:localhost/…/device:GPU:0 with 10410 MB memory` |
//!
//! These lines are not failures, so this is not a family; the families of TensorFlow look here for what their own lines do
//! not say. `MB` is 2²⁰ bytes.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::Facts;
use crate::figures::{binary_size, find_size};
use crate::log::Passage;

static TOTAL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?:totalMemory|Total memory): ?([\d.]+) ?([KMGT]?i?B)"));
static FREE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?:freeMemory|Free memory): ?([\d.]+) ?([KMGT]?i?B)"));
static SHARE: LazyLock<Regex> = LazyLock::new(|| pattern(r"device:GPU:\d+\)? with (\d+) (MB) memory"));

/// The device as TensorFlow found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// The device's memory.
    pub(super) total: Option<Bytes>,
    /// What was free before TensorFlow took anything.
    pub(super) free: Option<Bytes>,
    /// What TensorFlow allows itself.
    pub(super) share: Option<Bytes>,
}

impl Start {
    /// Reads the lines around a failure. They usually stand above it, but people paste logs in any order.
    pub(super) fn read(passage: &Passage<'_>) -> Self {
        let mut start = Self::default();
        for line in passage.before().chain(passage.onward()) {
            start.total = start.total.or_else(|| find_size(&TOTAL, line));
            start.free = start.free.or_else(|| find_size(&FREE, line));
            start.share = start.share.or_else(|| {
                let found = SHARE.captures(line)?;
                binary_size(&found[1], &found[2])
            });
        }
        start
    }

    /// States what the start already decided: others held most of the device, or TensorFlow was given a part.
    pub(super) fn state(self, facts: &mut Facts) {
        if let (Some(free), Some(total)) = (self.free, self.total)
            && free.share_of(total) < 0.5
        {
            facts.state(
                Cause::OtherProcesses,
                Certainty::Likely,
                format!("Only {free} of the GPU's {total} was free when TensorFlow started: other processes hold the rest."),
            );
        }
        if let (Some(share), Some(free)) = (self.share, self.free)
            && share.share_of(free) < 0.8
        {
            facts.limit = Some(share);
            facts.state(
                Cause::ArtificialLimit,
                Certainty::Likely,
                format!("TensorFlow was allowed only {share}, although {free} was free when it started."),
            );
        }
    }
}
