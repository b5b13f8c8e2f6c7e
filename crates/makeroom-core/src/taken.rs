//! What a process has taken from the driver, over time.
//!
//! ```text
//! taken = Σ segments + Σ blocks outside of segments
//! ```
//!
//! Blocks inside of segments do not count: they divide memory that an allocator has already taken. So taken ≥ live at any
//! moment.

use crate::{Action, Bytes, DeviceTrace, Event, FastMap, OlderBlock, Ranges, Start};

/// The driver allocates pages of this size. Only smaller blocks share one.
const DRIVER_PAGE: u64 = 2 << 20;

/// The running sum of the memory taken from the driver.
#[derive(Debug, Default)]
pub struct Taken {
    segments: Ranges,
    /// The range of segments that the last block was in, as start and size: the next one is often in the same.
    last: (u64, u64),
    outside: FastMap<u64, Bytes>,
    bytes: Bytes,
    rounding: Bytes,
}

/// The most that the driver adds to a block.
#[inline]
fn rounding(size: Bytes) -> Bytes {
    Bytes::new(size.get().wrapping_neg() % DRIVER_PAGE)
}

impl Taken {
    /// What was taken before the first event.
    pub fn new(start: &Start) -> Self {
        let mut taken = Self::default();
        for segment in &start.segments {
            taken.segments.insert(segment.address.0, segment.size.get());
            taken.bytes += segment.size;
        }
        let is_outside = |block: &&OlderBlock| !taken.segments.contains(block.address.0);
        // A table that grows keeps the old one until the entries have moved, and there may be millions of blocks.
        let count = start.blocks.iter().filter(is_outside).count();
        taken.outside.reserve(count);
        for block in &start.blocks {
            taken.take(block.address.0, block.requested);
        }
        taken
    }

    fn take(&mut self, address: u64, size: Bytes) {
        if !self.is_in_segment(address) {
            let lost = self.outside.insert(address, size).unwrap_or(Bytes::ZERO);
            self.bytes = self.bytes - lost + size;
            self.rounding = self.rounding - rounding(lost) + rounding(size);
        }
    }

    #[inline]
    fn is_in_segment(&mut self, address: u64) -> bool {
        let (start, size) = self.last;
        if address.wrapping_sub(start) < size {
            return true;
        }
        let range = self.segments.range_of(address);
        self.last = range.unwrap_or_default();
        range.is_some()
    }

    /// An event happens.
    #[inline]
    pub fn apply(&mut self, event: &Event) {
        let (address, size) = (event.address.0, event.size);
        match event.action {
            Action::Alloc => self.take(address, size),
            Action::FreeCompleted => {
                let freed = self.outside.remove(&address).unwrap_or(Bytes::ZERO);
                self.bytes = self.bytes - freed;
                self.rounding = self.rounding - rounding(freed);
            }
            Action::SegmentAlloc | Action::SegmentMap => {
                self.segments.insert(address, size.get());
                self.last = (0, 0);
                self.bytes += size;
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                self.segments.remove(address, size.get());
                self.last = (0, 0);
                self.bytes = self.bytes - size;
            }
            Action::FreeRequested | Action::Snapshot | Action::OutOfMemory => {}
        }
    }

    /// What an event would add to the sum.
    pub fn added_by(&self, event: &Event) -> Bytes {
        match event.action {
            Action::Alloc if self.segments.contains(event.address.0) => Bytes::ZERO,
            Action::Alloc | Action::SegmentAlloc | Action::SegmentMap => event.size,
            _ => Bytes::ZERO,
        }
    }

    /// The sum now.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// The most that the driver added to blocks outside of segments, because it allocates whole pages. Not part of the sum.
    pub fn rounding(&self) -> Bytes {
        self.rounding
    }

    /// The most that was taken at once during a recording that starts like this.
    pub fn peak(device: &DeviceTrace, start: &Start) -> Bytes {
        let mut taken = Self::new(start);
        let mut peak = taken.bytes();
        for event in device.events.iter() {
            taken.apply(&event);
            peak = peak.max(taken.bytes());
        }
        peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_rounds_what_is_outside_of_segments() {
        let mut taken = Taken::default();
        let mut after = |action, address, size: u64| {
            taken.apply(&Event::new(action, address, size));
            (taken.bytes().get(), taken.rounding().get())
        };
        assert_eq!(after(Action::SegmentAlloc, 1 << 30, 3 << 20), (3 << 20, 0));
        assert_eq!(after(Action::Alloc, 1 << 30, 1 << 20), (3 << 20, 0));
        assert_eq!(after(Action::Alloc, 1 << 40, 3 << 20), (6 << 20, 1 << 20));
        assert_eq!(after(Action::Alloc, 1 << 41, 4 << 20), (10 << 20, 1 << 20));
        // A damaged file can have two blocks at one address.
        assert_eq!(after(Action::Alloc, 1 << 40, (2 << 20) - 512), ((9 << 20) - 512, 512));
        assert_eq!(after(Action::FreeCompleted, 1 << 40, 0), (7 << 20, 0));
    }

    #[test]
    fn blocks_outside_of_segments_are_taken_too() {
        use Action::{Alloc, FreeCompleted, SegmentAlloc, SegmentFree};
        let mut device = DeviceTrace::default();
        for (action, address, size) in [
            (SegmentAlloc, 1000, 100),
            (Alloc, 1000, 60),
            (Alloc, 5000, 40),
            (FreeCompleted, 1000, 60),
            (SegmentFree, 1000, 100),
            (Alloc, 6000, 20),
        ] {
            device.events.push(Event::new(action, address, size));
        }
        assert_eq!(Taken::peak(&device, &Start::new(&device)), Bytes::new(140));
    }
}
