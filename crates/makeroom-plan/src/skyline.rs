//! The skyline heuristic of strip packing: a fast greedy plan for one order of priority.
//!
//! The skyline is the top of the memory already used in each section. Its lowest segment is a valley. Of the unplaced
//! buffers that live entirely within it, the one of highest priority is placed on its floor. If there is none, the
//! valley is filled up to its lower wall: this is where memory is wasted.
//!
//! ```text
//!      ┌───┐        ┌───┐               ┌───┐        ┌───┐
//!      │ b │        │ d │    place c    │ b │ ┌────┐ │ d │
//!      ├───┘ valley └───┤      ->       ├───┘ │ c  │ └───┤
//!      │ a              │               │ a   └────┘     │    two smaller valleys are left
//! ```
//!
//! It proves nothing and never revises a choice; the orders come from `improve`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::instance::Instance;
use crate::lifetime_tree::LifetimeTree;

const NONE: u32 = u32::MAX;

/// Adjacent sections with the same top.
#[derive(Debug, Clone, Copy)]
struct Segment {
    start: u32,
    end: u32,
    top: u64,
    previous: u32,
    next: u32,
    is_removed: bool,
}

/// Places buffers along a skyline; built once for an instance, used for many orders.
pub(crate) struct Skyline<'a> {
    instance: &'a Instance,
    unplaced: LifetimeTree,
    segments: Vec<Segment>,
    lowest: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// The offset of each buffer in the last plan.
    pub(crate) offsets: Vec<u64>,
    work: u64,
}

impl<'a> Skyline<'a> {
    pub(crate) fn new(instance: &'a Instance) -> Self {
        Self {
            instance,
            unplaced: LifetimeTree::new(instance),
            segments: Vec::new(),
            lowest: BinaryHeap::new(),
            offsets: vec![0; instance.len()],
            work: 0,
        }
    }

    /// The instance to plan.
    pub(crate) fn instance(&self) -> &'a Instance {
        self.instance
    }

    /// Steps since the last call. Tree accesses are slower than the scans of the search, so each visit counts as
    /// several.
    pub(crate) fn take_work(&mut self) -> u64 {
        4 * (std::mem::take(&mut self.unplaced.work) + std::mem::take(&mut self.work))
    }

    /// Places all buffers, with the highest priority first in `by_rank`, and returns the peak in units.
    pub(crate) fn place_all(&mut self, by_rank: Vec<u32>) -> u64 {
        let mut remaining = by_rank.len();
        self.unplaced.rank(by_rank);
        self.segments.clear();
        self.lowest.clear();
        let sections = self.instance.sections() as u32;
        self.add(Segment { start: 0, end: sections, top: 0, previous: NONE, next: NONE, is_removed: false });
        let mut peak = 0;
        while remaining > 0 {
            let Some(Reverse((_, _, index))) = self.lowest.pop() else { break };
            if self.segments[index as usize].is_removed {
                continue;
            }
            self.work += 4;
            let Segment { start, end, .. } = self.segments[index as usize];
            match self.unplaced.find(&(start..=end), &(start..=end)) {
                Some(buffer) => {
                    peak = peak.max(self.place(buffer, index));
                    remaining -= 1;
                }
                None => self.fill(index),
            }
        }
        peak
    }

    /// Places a buffer on the floor of a valley and returns its top.
    fn place(&mut self, buffer: usize, index: u32) -> u64 {
        let valley = self.segments[index as usize];
        let offset = self.instance.align(buffer, valley.top);
        let top = offset + self.instance.size[buffer];
        self.offsets[buffer] = offset;
        self.unplaced.remove(buffer);
        let span = self.instance.span(buffer);
        let (start, end) = (span.start as u32, span.end as u32);
        self.segments[index as usize].is_removed = true;
        let mut previous = valley.previous;
        if valley.start < start {
            previous = self.add(Segment { end: start, previous, next: NONE, ..valley });
        }
        let middle = self.add(Segment { start, end, top, previous, next: valley.next, is_removed: false });
        if end < valley.end {
            let rest = self.add(Segment { start: end, previous: middle, ..valley });
            self.segments[middle as usize].next = rest;
        }
        self.merge(middle);
        top
    }

    /// Gives up the floor of a valley in which no unplaced buffer fits.
    fn fill(&mut self, index: u32) {
        let valley = self.segments[index as usize];
        let wall = |neighbor: u32| {
            if neighbor == NONE { u64::MAX } else { self.segments[neighbor as usize].top }
        };
        let top = wall(valley.previous).min(wall(valley.next));
        self.segments[index as usize].is_removed = true;
        if top != u64::MAX {
            let filled = self.add(Segment { top, ..valley });
            self.merge(filled);
        }
    }

    /// Adds a segment and links its neighbors; `next` of the previous one may be set later.
    fn add(&mut self, segment: Segment) -> u32 {
        let index = self.segments.len() as u32;
        self.segments.push(segment);
        if segment.previous != NONE {
            self.segments[segment.previous as usize].next = index;
        }
        if segment.next != NONE {
            self.segments[segment.next as usize].previous = index;
        }
        self.lowest.push(Reverse((segment.top, segment.start, index)));
        index
    }

    /// Joins a segment with neighbors of the same top.
    fn merge(&mut self, index: u32) {
        let mut merged = self.segments[index as usize];
        let mut joined = false;
        for neighbor in [merged.previous, merged.next] {
            if neighbor != NONE && self.segments[neighbor as usize].top == merged.top {
                let other = self.segments[neighbor as usize];
                self.segments[neighbor as usize].is_removed = true;
                if other.start < merged.start {
                    (merged.start, merged.previous) = (other.start, other.previous);
                } else {
                    (merged.end, merged.next) = (other.end, other.next);
                }
                joined = true;
            }
        }
        if joined {
            self.segments[index as usize].is_removed = true;
            self.add(merged);
        }
    }
}
