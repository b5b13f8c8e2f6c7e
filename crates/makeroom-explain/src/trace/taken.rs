//! What a process has taken from the driver, over time.
//!
//! ```text
//! taken = Σ segments + Σ blocks outside of segments
//! ```
//!
//! Blocks inside of segments are a framework's own business: the driver does not know them.

use makeroom_core::{Action, Bytes, DeviceTrace, Event, FastMap, OlderBlock, Ranges, Start};

use super::state::{LiveBlock, State};

/// The running sum.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    segments: Ranges,
    outside: FastMap<u64, Bytes>,
    bytes: Bytes,
}

impl Taken {
    /// What was taken before the first event.
    pub(crate) fn new(start: &Start) -> Self {
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
        if !self.segments.contains(address) {
            let lost = self.outside.insert(address, size).unwrap_or(Bytes::ZERO);
            self.bytes = self.bytes - lost + size;
        }
    }

    /// An event happens.
    pub(crate) fn apply(&mut self, event: &Event) {
        let (address, size) = (event.address.0, event.size);
        match event.action {
            Action::Alloc => self.take(address, size),
            Action::FreeCompleted => {
                self.bytes = self.bytes - self.outside.remove(&address).unwrap_or(Bytes::ZERO);
            }
            Action::SegmentAlloc | Action::SegmentMap => {
                self.segments.insert(address, size.get());
                self.bytes += size;
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                self.segments.remove(address, size.get());
                self.bytes = self.bytes - size;
            }
            Action::FreeRequested | Action::Snapshot | Action::OutOfMemory => {}
        }
    }

    /// What an event would add to the sum.
    pub(crate) fn added_by(&self, event: &Event) -> Bytes {
        match event.action {
            Action::Alloc if self.segments.contains(event.address.0) => Bytes::ZERO,
            Action::Alloc | Action::SegmentAlloc | Action::SegmentMap => event.size,
            _ => Bytes::ZERO,
        }
    }

    /// The sum now.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes
    }
}

/// The most that was taken at once.
pub(crate) fn peak(device: &DeviceTrace, start: &Start) -> Bytes {
    let mut taken = Taken::new(start);
    let mut peak = taken.bytes();
    for event in device.events.iter() {
        taken.apply(&event);
        peak = peak.max(taken.bytes());
    }
    peak
}

/// What was taken at a moment.
pub(crate) fn at(device: &DeviceTrace, start: &Start, time_us: u64) -> Bytes {
    let mut taken = Taken::new(start);
    device.events.iter().take_while(|event| event.time_us <= time_us).for_each(|event| taken.apply(&event));
    taken.bytes()
}

/// The blocks that are the driver's: those outside of every segment.
pub(crate) fn outside(state: &State) -> impl Iterator<Item = &LiveBlock> {
    state.blocks.iter().filter(|block| is_outside(state, block))
}

/// Whether a block lies outside of every segment.
pub(crate) fn is_outside(state: &State, block: &LiveBlock) -> bool {
    let after = state.segments.partition_point(|segment| segment.address <= block.address);
    let before = after.checked_sub(1).and_then(|index| state.segments.get(index));
    before.is_none_or(|segment| block.address >= segment.address.saturating_add(segment.size))
}
