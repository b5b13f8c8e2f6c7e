//! Infers when PyTorch collected garbage in a recording that does not contain its memory limit.
//!
//! `garbage_collection_threshold` is a share of the limit that `set_per_process_memory_fraction` sets, and a snapshot
//! contains only the share. The limit is one number, and every request that needs new memory bounds it:
//!
//! ```text
//! reserved, no garbage freed although there was some    threshold ≥ reserved
//! reserved, freed in n rounds, then satisfied           reserved − freed(n) ≤ threshold < reserved − freed(n − 1)
//! ```
//!
//! One replay collects the bounds. It frees in each request as many rounds as the recording shows, so it stays on course
//! without a threshold. The check itself then runs with one threshold from between the bounds and predicts everything.

use super::LimitBounds;
use super::recording::Recording;
use crate::driver::{Driver, Refused};
use crate::pytorch::{Pytorch, Request};

/// Maximum number of requests to test for another explanation: each test copies the allocator.
const MOST_TESTS: usize = 1000;

/// Bounds of the reserved memory above which garbage is collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GarbageBounds {
    /// The lowest possible threshold.
    at_least: u64,
    /// The threshold is below this.
    below: u64,
}

impl GarbageBounds {
    /// Thresholds to try. Any one is right unless a request that was left out as ambiguous tells them apart.
    pub(super) fn samples(self) -> [u64; 3] {
        let last = self.below - 1;
        [self.at_least.midpoint(last), self.at_least, last]
    }

    /// The limits of which this share is a possible threshold. Reserved memory was never above the limit.
    pub(super) fn limit(self, share: f64, peak_reserved: u64) -> LimitBounds {
        let at_least = ((self.at_least as f64 / share) as u64).max(peak_reserved);
        LimitBounds { at_least, at_most: ((self.below as f64 / share) as u64).max(at_least) }
    }
}

/// Collects bounds during a replay.
#[derive(Debug)]
pub(super) struct Garbage {
    bounds: GarbageBounds,
    tests_left: usize,
}

impl Default for Garbage {
    fn default() -> Self {
        Self { bounds: GarbageBounds { at_least: 0, below: u64::MAX }, tests_left: MOST_TESTS }
    }
}

impl Garbage {
    /// The bounds, if garbage was collected at all. If they contradict each other, the limit changed or an age is
    /// unknown, and no threshold explains the recording.
    pub(super) fn bounds(&self) -> Option<GarbageBounds> {
        (self.bounds.below < u64::MAX && self.bounds.at_least < self.bounds.below).then_some(self.bounds)
    }

    /// Before a request: sets the allocator to free as many rounds as recorded, and learns from their number.
    pub(super) fn observe(
        &mut self,
        allocator: &mut Pytorch,
        recording: &Recording<'_>,
        number: u32,
        request: Request,
    ) {
        if allocator.would_fit(request) {
            return;
        }
        let rounds = allocator.garbage();
        let (released, is_served) = recording.releases();
        let mut reserved = allocator.reserved();
        let mut reserved_after = vec![reserved];
        let mut left = released.as_slice();
        for round in &rounds {
            let Some(rest) = left.strip_prefix(round.as_slice()) else { break };
            left = rest;
            reserved = round.iter().fold(reserved, |reserved, (_, size)| reserved.saturating_sub(*size));
            reserved_after.push(reserved);
        }
        // A threshold equal to what is reserved after a round ends the collection with it.
        allocator.set_garbage_threshold(Some(reserved));
        // A request that failed or released more may have released some of it for lack of memory.
        if rounds.is_empty() || !is_served || !left.is_empty() {
            return;
        }
        let count = reserved_after.len() - 1;
        let at_least = if count < rounds.len() { reserved } else { 0 };
        let below = count.checked_sub(1).map_or(u64::MAX, |previous| reserved_after[previous]);
        if at_least <= self.bounds.at_least && below >= self.bounds.below {
            return;
        }
        let fewer = &reserved_after[..count];
        if fewer
            .iter()
            .all(|&threshold| self.is_contradicted(threshold, allocator, &released, number, request))
        {
            self.bounds.at_least = self.bounds.at_least.max(at_least);
            self.bounds.below = self.bounds.below.min(below);
        }
    }

    /// Whether an allocator with this threshold would have released something else, even if it was out of memory.
    fn is_contradicted(
        &mut self,
        threshold: u64,
        allocator: &Pytorch,
        released: &[(u64, u64)],
        number: u32,
        request: Request,
    ) -> bool {
        let Some(left) = self.tests_left.checked_sub(1) else { return false };
        self.tests_left = left;
        let mut other = allocator.clone();
        other.set_garbage_threshold(Some(threshold));
        let mut driver = FullUntil { expected: released, released: 0, is_other: false };
        other.allocate(&mut driver, number, request).is_err()
    }
}

/// A device that is full until exactly the expected segments are released.
struct FullUntil<'expected> {
    expected: &'expected [(u64, u64)],
    released: usize,
    is_other: bool,
}

impl FullUntil<'_> {
    fn answer(&self) -> Result<(), Refused> {
        if !self.is_other && self.released == self.expected.len() { Ok(()) } else { Err(Refused) }
    }
}

impl Driver for FullUntil<'_> {
    fn allocate(&mut self, _size: u64, _stream: u64) -> Result<u64, Refused> {
        self.answer().map(|()| 0)
    }

    fn release(&mut self, address: u64, size: u64) {
        self.is_other |= self.expected.get(self.released) != Some(&(address, size));
        self.released += 1;
    }

    fn reserve(&mut self, _stream: u64, _is_small: bool) -> u64 {
        0
    }

    fn map(&mut self, _address: u64, _size: u64, _page: u64) -> Result<(), Refused> {
        self.answer()
    }

    fn unmap(&mut self, _address: u64, _size: u64, _page: u64) {
        self.is_other = true;
    }

    fn synchronize(&mut self) -> Vec<u32> {
        Vec::new()
    }
}
