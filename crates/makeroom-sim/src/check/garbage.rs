//! Infers when PyTorch collected garbage in a recording that does not contain its memory limit.
//!
//! `garbage_collection_threshold` is a share of the limit that `set_per_process_memory_fraction` sets, and a snapshot
//! contains only the share. The limit is one number, and every request that needs new memory bounds it:
//!
//! ```text
//! reserved, no garbage freed although there was some    threshold ≥ reserved
//! reserved, freed in n rounds, then served              reserved − freed(n) ≤ threshold < reserved − freed(n − 1)
//! ```
//!
//! One replay collects the bounds. It frees in each request as many rounds as the recording shows, so it stays on course
//! without a threshold. The check itself then runs with one threshold from between the bounds and predicts everything. If the
//! program changes its limit, there are several thresholds, each from an event on.

use super::LimitBounds;
use super::recording::Recording;
use crate::driver::{Driver, Refused};
use crate::pytorch::{Pytorch, Request};

/// Maximum number of requests to test for another explanation: each test copies the allocator.
const MOST_TESTS: usize = 1000;

/// Unused segments to list: in total, and in addition for each request, so that the work stays proportional to the
/// recording. Real recordings have fewer than this many in a request.
const LISTED_IN_ALL: usize = 16 << 20;
const LISTED_PER_REQUEST: usize = 256;

/// Maximum number of limits in one recording. More are a sign that ages or settings are wrong.
const MOST_LIMITS: usize = 8;

/// Bounds of the reserved memory above which garbage is collected, from an event on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GarbageBounds {
    from: usize,
    /// The lowest possible threshold.
    at_least: u64,
    /// The threshold is below this; `u64::MAX` if no garbage was collected.
    below: u64,
}

impl GarbageBounds {
    fn from(event: usize) -> Self {
        Self { from: event, at_least: 0, below: u64::MAX }
    }

    fn within(self, other: Self) -> Self {
        let (at_least, below) = (self.at_least.max(other.at_least), self.below.min(other.below));
        Self { from: self.from, at_least, below }
    }

    /// The limits of which this share is a possible threshold.
    pub(super) fn limit(self, share: f64) -> LimitBounds {
        let limit = |threshold: u64| (threshold as f64 / share) as u64;
        let is_bounded = self.below < u64::MAX;
        LimitBounds {
            from_event: self.from,
            at_least: limit(self.at_least),
            at_most: is_bounded.then(|| limit(self.below)),
        }
    }
}

/// Thresholds from events on, in order.
pub(super) type Thresholds = Vec<(usize, u64)>;

/// Thresholds to try. Any between the bounds are right unless a request that was left out as ambiguous tells them apart.
pub(super) fn samples(bounds: &[GarbageBounds]) -> [Thresholds; 3] {
    let each = |threshold: fn(u64, u64) -> u64| {
        bounds.iter().map(|bounds| (bounds.from, threshold(bounds.at_least, bounds.below - 1))).collect()
    };
    [each(u64::midpoint), each(|at_least, _| at_least), each(|_, last| last)]
}

/// Collects bounds during a replay.
#[derive(Debug)]
pub(super) struct Garbage {
    /// The program can change the limit. Bounds that contradict those before are of another limit.
    bounds: Vec<GarbageBounds>,
    tests_left: usize,
    listings_left: usize,
}

impl Default for Garbage {
    fn default() -> Self {
        Self { bounds: vec![GarbageBounds::from(0)], tests_left: MOST_TESTS, listings_left: LISTED_IN_ALL }
    }
}

impl Garbage {
    /// The bounds of each limit; none if no garbage was collected, or if the number of limits makes no sense.
    pub(super) fn into_bounds(self) -> Vec<GarbageBounds> {
        let is_collected = self.bounds.iter().any(|bounds| bounds.below < u64::MAX);
        if is_collected && self.bounds.len() <= MOST_LIMITS { self.bounds } else { Vec::new() }
    }

    fn learn(&mut self, new: GarbageBounds) {
        if let Some(current) = self.bounds.last_mut() {
            let both = current.within(new);
            if both.at_least < both.below {
                *current = both;
                return;
            }
        }
        if self.bounds.len() <= MOST_LIMITS {
            self.bounds.push(new);
        }
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
        let (released, is_served) = recording.releases();
        let mut reserved = allocator.reserved();
        // Most requests release nothing and lie below a bound that is already known.
        let is_known = released.is_empty()
            && (!is_served || self.bounds.last().is_some_and(|current| current.at_least >= reserved));
        if is_known || self.listings_left == 0 {
            allocator.set_garbage_threshold(Some(reserved));
            return;
        }
        let rounds = allocator.garbage();
        let listed: usize = rounds.iter().map(Vec::len).sum();
        self.listings_left = (self.listings_left + LISTED_PER_REQUEST).saturating_sub(listed);
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
        let bounds = |fewest: usize| {
            let below = fewest.checked_sub(1).map_or(u64::MAX, |previous| reserved_after[previous]);
            GarbageBounds { at_least, below, ..GarbageBounds::from(recording.end) }
        };
        if self.bounds.last().is_some_and(|current| current.within(bounds(count)) == *current) {
            return;
        }
        // After fewer rounds, lack of memory may have released the same.
        let mut is_contradicted = |rounds: &usize| {
            self.is_contradicted(reserved_after[*rounds], allocator, &released, number, request)
        };
        let fewest = (0..count).take_while(&mut is_contradicted).count();
        self.learn(bounds(fewest));
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
        other.allocate_block(&mut driver, number, request).is_err()
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
    fn allocate_segment(&mut self, _size: u64, _stream: u64) -> Result<u64, Refused> {
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
