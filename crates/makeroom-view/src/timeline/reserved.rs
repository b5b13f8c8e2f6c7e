//! Reserved memory over time, and the segments at any moment.
//!
//! ```text
//! reserved = Σ segments + Σ allocations outside of every segment
//! ```
//!
//! Whether an allocation is in a segment is determined when it is made and stored as one bit, so that the change of
//! the sum follows from the event alone.

use makeroom_core::{Action, DeviceTrace, Event, Ranges, Start};
use makeroom_explain::{Allocations, HeldSegment, SegmentsHeld};

/// Minimum number of segment events between two checkpoints.
const CHECKPOINT_EVENTS: usize = 1 << 10;

/// The reserved memory of a device over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reserved {
    /// One bit per allocation: whether it is outside all segments.
    outside: Vec<u64>,
    /// Indices of segment events.
    events: Vec<u32>,
    /// The segments before the event at this index of `events`.
    checkpoints: Vec<(usize, SegmentsHeld)>,
    /// Reserved memory before the first event.
    pub(crate) at_start: u64,
    /// Whether any segment is known.
    pub(crate) has_segments: bool,
}

impl Reserved {
    pub(crate) fn new(device: &DeviceTrace, start: &Start, allocations: &Allocations) -> Self {
        let mut reserved = Self { outside: vec![0; allocations.len().div_ceil(64)], ..Self::default() };
        let mut mapped = Ranges::default();
        for segment in &start.segments {
            mapped.insert(segment.address.0, segment.size.get());
        }
        reserved.at_start = start.reserved().get();
        for (block, number) in start.blocks.iter().zip(0..) {
            if !mapped.contains(block.address.0) {
                reserved.set_outside(number);
                reserved.at_start = reserved.at_start.saturating_add(block.requested.get());
            }
        }
        reserved.has_segments = !device.segments.is_empty() || !start.segments.is_empty();
        let mut held = SegmentsHeld::at_start(device, start);
        reserved.checkpoints.push((0, held.clone()));
        let mut next_checkpoint = CHECKPOINT_EVENTS;
        // The segment of the last allocation: most allocations are in the same one as their predecessor.
        let mut last_home = 0..0;
        for (index, action) in device.events.actions().iter().enumerate() {
            match action {
                Action::Alloc => {
                    let Some(event) = device.events.get(index) else { continue };
                    let address = event.address.0;
                    if last_home.contains(&address) {
                        continue;
                    }
                    match mapped.range_of(address) {
                        Some((from, size)) => last_home = from..from.saturating_add(size),
                        None => {
                            if let Some(number) = allocations.of_event(index) {
                                reserved.set_outside(number);
                            }
                        }
                    }
                }
                Action::SegmentAlloc | Action::SegmentMap | Action::SegmentFree | Action::SegmentUnmap => {
                    let Some(event) = device.events.get(index) else { continue };
                    reserved.has_segments = true;
                    if matches!(action, Action::SegmentAlloc | Action::SegmentMap) {
                        mapped.insert(event.address.0, event.size.get());
                    } else {
                        mapped.remove(event.address.0, event.size.get());
                    }
                    last_home = 0..0;
                    reserved.events.push(index as u32);
                    held.apply(device, index);
                    let done = reserved.events.len();
                    if done >= next_checkpoint {
                        reserved.checkpoints.push((done, held.clone()));
                        next_checkpoint = done + CHECKPOINT_EVENTS.max(held.weight());
                    }
                }
                _ => {}
            }
        }
        reserved
    }

    fn set_outside(&mut self, number: u32) {
        self.outside[number as usize / 64] |= 1 << (number % 64);
    }

    /// Whether an allocation is outside all segments.
    pub(crate) fn is_outside(&self, number: u32) -> bool {
        self.outside.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Reserved memory after a segment event.
    pub(crate) fn after(reserved: u64, event: &Event) -> u64 {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => reserved.saturating_add(event.size.get()),
            Action::SegmentFree | Action::SegmentUnmap => reserved.saturating_sub(event.size.get()),
            _ => reserved,
        }
    }

    /// The segments at a position, by ascending address.
    pub(crate) fn segments_at(&self, device: &DeviceTrace, position: usize) -> Vec<HeldSegment> {
        let count = self.events.partition_point(|&event| (event as usize) < position);
        let after = self.checkpoints.partition_point(|(events, _)| *events <= count);
        let Some((done, held)) = after.checked_sub(1).and_then(|index| self.checkpoints.get(index)) else {
            return Vec::new();
        };
        let mut held = held.clone();
        for &event in &self.events[*done..count] {
            held.apply(device, event as usize);
        }
        held.list()
    }
}
