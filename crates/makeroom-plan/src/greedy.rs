//! A fast greedy plan for one order of priority: always fill the lowest part of the skyline.
//!
//! The skyline is the height already used in each section. Its lowest stretch of equal height is a valley. Of the
//! unplaced buffers that live entirely within it, the one of highest priority is placed on its floor. If there is none,
//! the valley is filled up to its lower wall: this is where memory is wasted.
//!
//! ```text
//!      ┌───┐        ┌───┐               ┌───┐        ┌───┐
//!      │ b │        │ d │    place c    │ b │ ┌────┐ │ d │
//!      ├───┘ valley └───┤      ->       ├───┘ │ c  │ └───┤
//!      │ a              │               │ a   └────┘     │    two smaller valleys are left
//! ```
//!
//! Greedy placement proves nothing and never revises a choice; the orders come from `improve`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::contained::Contained;
use crate::instance::Instance;

const NOBODY: u32 = u32::MAX;

/// A stretch of sections with the same height.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    start: u32,
    end: u32,
    top: u64,
    previous: u32,
    next: u32,
    gone: bool,
}

/// Places buffers along a skyline; built once for an instance, used for many orders.
pub(crate) struct Greedy<'a> {
    instance: &'a Instance,
    contained: Contained,
    stretches: Vec<Stretch>,
    lowest: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// The offset of each buffer in the last plan.
    pub(crate) offsets: Vec<u64>,
    own_work: u64,
}

impl<'a> Greedy<'a> {
    pub(crate) fn new(instance: &'a Instance) -> Self {
        Self {
            instance,
            contained: Contained::new(instance),
            stretches: Vec::new(),
            lowest: BinaryHeap::new(),
            offsets: vec![0; instance.len()],
            own_work: 0,
        }
    }

    /// The instance to plan.
    pub(crate) fn instance(&self) -> &'a Instance {
        self.instance
    }

    /// Steps since the last call. Tree accesses are slower than the scans of the search, so each visit counts as
    /// several.
    pub(crate) fn take_work(&mut self) -> u64 {
        4 * (std::mem::take(&mut self.contained.work) + std::mem::take(&mut self.own_work))
    }

    /// Places all buffers, with the highest priority first in `by_rank`, and returns the height in units.
    pub(crate) fn place_all(&mut self, by_rank: Vec<u32>) -> u64 {
        let mut waiting = by_rank.len();
        self.contained.rank(by_rank);
        self.stretches.clear();
        self.lowest.clear();
        let sections = self.instance.sections() as u32;
        self.add(Stretch { start: 0, end: sections, top: 0, previous: NOBODY, next: NOBODY, gone: false });
        let mut height = 0;
        while waiting > 0 {
            let Some(Reverse((_, _, index))) = self.lowest.pop() else { break };
            if self.stretches[index as usize].gone {
                continue;
            }
            self.own_work += 4;
            let Stretch { start, end, .. } = self.stretches[index as usize];
            match self.contained.find(&(start..=end), &(start..=end)) {
                Some(buffer) => {
                    height = height.max(self.place(buffer, index));
                    waiting -= 1;
                }
                None => self.fill(index),
            }
        }
        height
    }

    /// Places a buffer on the floor of a valley and returns its top.
    fn place(&mut self, buffer: usize, index: u32) -> u64 {
        let valley = self.stretches[index as usize];
        let offset = self.instance.align(buffer, valley.top);
        let top = offset + self.instance.size[buffer];
        self.offsets[buffer] = offset;
        self.contained.remove(buffer);
        let span = self.instance.span(buffer);
        let (start, end) = (span.start as u32, span.end as u32);
        self.stretches[index as usize].gone = true;
        let mut previous = valley.previous;
        if valley.start < start {
            previous = self.add(Stretch { end: start, previous, next: NOBODY, ..valley });
        }
        let middle = self.add(Stretch { start, end, top, previous, next: valley.next, gone: false });
        if end < valley.end {
            let rest = self.add(Stretch { start: end, previous: middle, ..valley });
            self.stretches[middle as usize].next = rest;
        }
        self.merge(middle);
        top
    }

    /// Gives up the floor of a valley in which no unplaced buffer fits.
    fn fill(&mut self, index: u32) {
        let valley = self.stretches[index as usize];
        let wall = |neighbour: u32| {
            if neighbour == NOBODY { u64::MAX } else { self.stretches[neighbour as usize].top }
        };
        let top = wall(valley.previous).min(wall(valley.next));
        self.stretches[index as usize].gone = true;
        if top != u64::MAX {
            let filled = self.add(Stretch { top, ..valley });
            self.merge(filled);
        }
    }

    /// Adds a stretch and links its neighbors; `next` of the previous one may be set later.
    fn add(&mut self, stretch: Stretch) -> u32 {
        let index = self.stretches.len() as u32;
        self.stretches.push(stretch);
        if stretch.previous != NOBODY {
            self.stretches[stretch.previous as usize].next = index;
        }
        if stretch.next != NOBODY {
            self.stretches[stretch.next as usize].previous = index;
        }
        self.lowest.push(Reverse((stretch.top, stretch.start, index)));
        index
    }

    /// Joins a stretch with neighbors of the same height.
    fn merge(&mut self, index: u32) {
        let mut merged = self.stretches[index as usize];
        let mut joined = false;
        for neighbour in [merged.previous, merged.next] {
            if neighbour != NOBODY && self.stretches[neighbour as usize].top == merged.top {
                let other = self.stretches[neighbour as usize];
                self.stretches[neighbour as usize].gone = true;
                if other.start < merged.start {
                    (merged.start, merged.previous) = (other.start, other.previous);
                } else {
                    (merged.end, merged.next) = (other.end, other.next);
                }
                joined = true;
            }
        }
        if joined {
            self.stretches[index as usize].gone = true;
            self.add(merged);
        }
    }
}
