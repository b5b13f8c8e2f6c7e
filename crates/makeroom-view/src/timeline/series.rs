//! Live memory over time in buckets of any width, from a whole run down to single events.
//!
//! A bucket of level `k` covers `4^k` positions and shows the one with the most live memory, so its layers add up to
//! its `live` exactly, and peaks are visible at every zoom level. Buckets of the base level are stored; coarser ones
//! are chosen among them, and finer ones are computed from the events between.
//!
//! ```text
//! Σ layers = live        low ≤ live        reserved ≤ most reserved        one bucket of level k = the highest of its four of level k − 1
//! ```

use makeroom_core::{Action, Trace};
use makeroom_explain::Allocation;

use super::Timeline;
use super::reserved::Reserved;
use super::sites::{LAYERS, Sites};

/// Buckets per tile.
pub(crate) const TILE: usize = 512;
/// Maximum number of buckets in the base level.
const MOST_BASE: usize = 1 << 16;

/// The memory at one position.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) position: u32,
    pub(crate) live: u64,
    pub(crate) reserved: u64,
    pub(crate) layers: [u64; LAYERS],
}

/// A bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    /// The position with the most live memory; the first if there are several.
    pub(crate) highest: Sum,
    /// Minimum of live memory.
    pub(crate) low: u64,
    /// Maximum of reserved memory, which may be at another position.
    pub(crate) most_reserved: u64,
}

/// The stored buckets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    base_level: u32,
    base: Vec<Bucket>,
    /// The state before the first event.
    start: Sum,
    /// Number of positions: one more than events.
    positions: usize,
}

/// Number of positions that a bucket of a level covers.
pub(crate) fn width(level: u32) -> usize {
    1_usize.checked_shl(2 * level).unwrap_or(usize::MAX)
}

impl Series {
    /// Starts a series; call `add` once for each position.
    pub(crate) fn new(events: usize) -> Self {
        let positions = events + 1;
        let base_level = (0..31).find(|&level| positions.div_ceil(width(level)) <= MOST_BASE).unwrap_or(31);
        let base = Vec::with_capacity(positions.div_ceil(width(base_level)));
        Self { base_level, base, start: Sum::default(), positions }
    }

    /// Adds the next position.
    pub(crate) fn add(&mut self, sum: &Sum) {
        if sum.position == 0 {
            self.start = *sum;
        }
        if (sum.position as usize).is_multiple_of(width(self.base_level)) {
            self.base.push(Bucket::new(sum));
        } else if let Some(bucket) = self.base.last_mut() {
            bucket.take(sum);
        }
    }

    /// Number of levels; the last one has a single tile.
    pub(crate) fn levels(&self) -> u32 {
        (0..32).find(|&level| self.positions.div_ceil(width(level)) <= TILE).unwrap_or(31) + 1
    }

    /// Number of buckets in a level.
    pub(crate) fn buckets(&self, level: u32) -> usize {
        self.positions.div_ceil(width(level))
    }

    /// The maximum of reserved memory and the first base bucket that has it.
    fn most_reserved(&self) -> Option<(usize, u64)> {
        let buckets = self.base.iter().map(|bucket| bucket.most_reserved).enumerate();
        buckets.rev().max_by_key(|&(_, most)| most)
    }

    /// The first position at which most memory is reserved, and how much.
    pub(crate) fn peak_reserved(&self, trace: &Trace, timeline: &Timeline, sites: &Sites) -> (usize, u64) {
        let Some((bucket, most)) = self.most_reserved() else { return (0, 0) };
        let each = width(self.base_level);
        let first = bucket * each;
        let mut walk = Walk { trace, timeline, sites, sum: self.known_before(first) };
        let last = (first + each).min(self.positions);
        let found = (first..last).find(|&position| {
            walk.go_to(position);
            walk.sum.reserved == most
        });
        (found.unwrap_or(first), most)
    }

    /// The buckets of a tile; `None` if it does not exist.
    pub(crate) fn tile(
        &self,
        trace: &Trace,
        timeline: &Timeline,
        sites: &Sites,
        level: u32,
        tile: usize,
    ) -> Option<Vec<Bucket>> {
        let first = tile.checked_mul(TILE).filter(|&first| first < self.buckets(level))?;
        let last = (first + TILE).min(self.buckets(level));
        if level >= self.levels() {
            return None;
        }
        Some(if level >= self.base_level {
            self.merged(level, first..last)
        } else {
            self.walked(trace, timeline, sites, level, first..last)
        })
    }

    fn merged(&self, level: u32, buckets: std::ops::Range<usize>) -> Vec<Bucket> {
        let each = width(level - self.base_level);
        buckets
            .filter_map(|bucket| {
                let from = bucket * each;
                let parts = self.base.get(from..(from + each).min(self.base.len()))?;
                // The first of the highest.
                let highest = parts.iter().rev().max_by_key(|part| part.highest.live)?;
                let low = parts.iter().map(|part| part.low).min()?;
                let most_reserved = parts.iter().map(|part| part.most_reserved).max()?;
                Some(Bucket { highest: highest.highest, low, most_reserved })
            })
            .collect()
    }

    fn walked(
        &self,
        trace: &Trace,
        timeline: &Timeline,
        sites: &Sites,
        level: u32,
        buckets: std::ops::Range<usize>,
    ) -> Vec<Bucket> {
        let each = width(level);
        let positions = buckets.start * each..(buckets.end * each).min(self.positions);
        let mut walk = Walk { trace, timeline, sites, sum: self.known_before(positions.start) };
        let mut found: Vec<Bucket> = Vec::with_capacity(buckets.len());
        for position in positions {
            walk.go_to(position);
            if position.is_multiple_of(each) {
                found.push(Bucket::new(&walk.sum));
            } else if let Some(bucket) = found.last_mut() {
                bucket.take(&walk.sum);
            }
        }
        found
    }

    /// The last stored position that is not after this one.
    fn known_before(&self, position: usize) -> Sum {
        let index = position / width(self.base_level);
        let candidates = [Some(index), index.checked_sub(1)].into_iter().flatten();
        let known = candidates.filter_map(|index| self.base.get(index)).map(|bucket| bucket.highest);
        known.into_iter().find(|sum| sum.position as usize <= position).unwrap_or(self.start)
    }

    /// The memory at a position.
    pub(crate) fn at(&self, trace: &Trace, timeline: &Timeline, sites: &Sites, position: usize) -> Sum {
        let mut walk = Walk { trace, timeline, sites, sum: self.known_before(position) };
        walk.go_to(position);
        walk.sum
    }
}

impl Bucket {
    fn new(sum: &Sum) -> Self {
        Self { highest: *sum, low: sum.live, most_reserved: sum.reserved }
    }

    fn take(&mut self, sum: &Sum) {
        if sum.live > self.highest.live {
            self.highest = *sum;
        }
        self.low = self.low.min(sum.live);
        self.most_reserved = self.most_reserved.max(sum.reserved);
    }
}

/// The memory while stepping through events.
pub(crate) struct Walk<'walk> {
    pub(crate) trace: &'walk Trace,
    pub(crate) timeline: &'walk Timeline,
    pub(crate) sites: &'walk Sites,
    pub(crate) sum: Sum,
}

/// The effect of an event on an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It begins.
    Begin,
    /// It ends.
    End,
}

impl Walk<'_> {
    /// Advances to a position; does nothing if it is already passed.
    fn go_to(&mut self, position: usize) {
        for event in self.sum.position as usize..position {
            self.step(event, |_, _, _| {});
        }
    }

    /// Processes one event. Calls `tell` with the allocations that begin or end, and their sites.
    pub(crate) fn step(&mut self, index: usize, mut tell: impl FnMut(Turn, &Allocation, u32)) {
        self.sum.position = index as u32 + 1;
        let timeline = self.timeline;
        let device = timeline.device(self.trace);
        match device.events.actions().get(index) {
            Some(Action::Alloc) => {
                if let Some(lost) = timeline.allocations.replaced_by(index) {
                    self.turn(Turn::End, lost, &mut tell);
                }
                if let Some(number) = timeline.allocations.of_event(index) {
                    self.turn(Turn::Begin, number, &mut tell);
                }
            }
            Some(Action::FreeCompleted) => {
                if let Some(number) = timeline.allocations.of_event(index) {
                    self.turn(Turn::End, number, &mut tell);
                }
            }
            Some(Action::SegmentAlloc | Action::SegmentMap | Action::SegmentFree | Action::SegmentUnmap) => {
                if let Some(event) = device.events.get(index) {
                    self.sum.reserved = Reserved::after(self.sum.reserved, &event);
                }
            }
            _ => {}
        }
    }

    /// Adds an allocation that is older than the recording. Its reserved memory is already counted.
    pub(crate) fn begin_older(&mut self, number: u32, tell: &mut impl FnMut(Turn, &Allocation, u32)) {
        let reserved = self.sum.reserved;
        self.turn(Turn::Begin, number, tell);
        self.sum.reserved = reserved;
    }

    fn turn(&mut self, turn: Turn, number: u32, tell: &mut impl FnMut(Turn, &Allocation, u32)) {
        let Some(allocation) = self.timeline.allocation(self.trace, number) else { return };
        let holder = self.sites.site_of(&allocation);
        let size = allocation.requested;
        let change = |sum: u64| match turn {
            Turn::Begin => sum.saturating_add(size),
            Turn::End => sum.saturating_sub(size),
        };
        let layer = &mut self.sum.layers[self.sites.layer(holder)];
        *layer = change(*layer);
        self.sum.live = change(self.sum.live);
        if self.timeline.reserved.is_outside(number) {
            self.sum.reserved = change(self.sum.reserved);
        }
        tell(turn, &allocation, holder);
    }
}
