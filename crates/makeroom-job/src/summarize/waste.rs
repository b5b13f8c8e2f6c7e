//! Cached and fragmented memory over time, as byte-seconds.
//!
//! ```text
//! held       = memory taken from the driver
//! cached     = held − live: the allocator keeps it for later
//! fragmented = free memory in segments that are partly in use; the allocator cannot release these
//! fragmented ≤ cached ≤ held
//! ```
//!
//! Expandable segments release free pages next to used ones, so their free memory is cached and not fragmented.

use makeroom_core::{Action, Event, Start};
use makeroom_ordered::OrderedMap;

/// Byte-seconds of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waste {
    pub(super) held: u64,
    pub(super) cached: u64,
    pub(super) fragmented: u64,
}

/// A segment, and the live memory in it.
#[derive(Clone, Copy)]
struct Part {
    size: u64,
    live: u64,
}

impl Part {
    fn fragmented(&self) -> u64 {
        if self.live == 0 { 0 } else { self.size.saturating_sub(self.live) }
    }
}

/// Pages of addresses whose segment is remembered.
const PAGES: usize = 256;
/// Address bits within a page.
const PAGE_BITS: u32 = 21;

/// A segment that was found: where it starts, and its position among the parts.
#[derive(Clone, Copy, Default)]
struct Found {
    start: u64,
    part: usize,
}

/// Integrates over the events of a device.
#[derive(Default)]
pub(super) struct WasteOverTime {
    /// By address, as positions in `parts`. A recording can have as many segments as events.
    by_address: OrderedMap<u64, usize>,
    /// A segment that was freed has no size.
    parts: Vec<Part>,
    /// The segments of recent blocks, by page.
    found: Vec<Found>,
    live: u64,
    held: u64,
    fragmented: u64,
    last_us: Option<u64>,
    /// Byte-microseconds.
    sums: [u128; 3],
}

impl WasteOverTime {
    pub(super) fn new(start: &Start) -> Self {
        let mut waste = Self::default();
        for segment in start.segments.iter().filter(|segment| !segment.is_expandable) {
            waste.insert(segment.address.0, segment.size.get());
        }
        for block in &start.blocks {
            waste.change(block.address.0, block.requested.get(), true);
        }
        waste
    }

    /// An event happens, after which `held` bytes are taken from the driver.
    pub(super) fn apply(&mut self, event: &Event, held: u64) {
        self.pass_to(event.time_us);
        let (address, size) = (event.address.0, event.size.get());
        match event.action {
            Action::Alloc => self.change(address, size, true),
            Action::FreeCompleted => self.change(address, size, false),
            Action::SegmentAlloc => self.insert(address, size),
            Action::SegmentFree => self.remove(address),
            _ => {}
        }
        self.held = held;
    }

    /// The sums, if the recording ends then.
    pub(super) fn until(&self, ended_us: Option<u64>) -> Waste {
        let mut sums = self.sums;
        if let (Some(last), Some(end)) = (self.last_us, ended_us) {
            self.add(end.saturating_sub(last), &mut sums);
        }
        let [held, cached, fragmented] = sums.map(|sum| u64::try_from(sum / 1_000_000).unwrap_or(u64::MAX));
        Waste { held, cached, fragmented }
    }

    fn pass_to(&mut self, time_us: u64) {
        // Times of a hostile recording may go backward. Many events have the time of the one before.
        let last = self.last_us.unwrap_or(time_us);
        if time_us > last {
            let mut sums = self.sums;
            self.add(time_us - last, &mut sums);
            self.sums = sums;
        }
        self.last_us = Some(last.max(time_us));
    }

    fn add(&self, passed_us: u64, sums: &mut [u128; 3]) {
        let cached = self.held.saturating_sub(self.live);
        for (sum, bytes) in sums.iter_mut().zip([self.held, cached, self.fragmented.min(cached)]) {
            *sum = sum.saturating_add(u128::from(bytes) * u128::from(passed_us));
        }
    }

    fn change(&mut self, address: u64, size: u64, is_alloc: bool) {
        let changed =
            |live: u64| if is_alloc { live.saturating_add(size) } else { live.saturating_sub(size) };
        self.live = changed(self.live);
        if let Some(part) = self.part_of(address) {
            let part = &mut self.parts[part];
            let before = part.fragmented();
            part.live = changed(part.live);
            self.fragmented = self.fragmented.saturating_sub(before).saturating_add(part.fragmented());
        }
    }

    /// The position of the segment that contains an address.
    fn part_of(&mut self, address: u64) -> Option<usize> {
        let page = (address >> PAGE_BITS) as usize % PAGES;
        let contains = |start: u64, part: usize| address.wrapping_sub(start) < self.parts[part].size;
        if let Some(&Found { start, part }) = self.found.get(page)
            && contains(start, part)
        {
            return Some(part);
        }
        let (&start, &part) = self.by_address.range(..=address).next_back()?;
        if !contains(start, part) {
            return None;
        }
        // There is a part, so the default refers to one.
        self.found.resize(PAGES, Found::default());
        self.found[page] = Found { start, part };
        Some(part)
    }

    fn insert(&mut self, address: u64, size: u64) {
        let Some(end) = address.checked_add(size).filter(|_| size > 0) else { return };
        // A segment that overlaps another one is not counted.
        let below = self.by_address.range(..end).next_back();
        if below.is_none_or(|(start, &part)| start + self.parts[part].size <= address) {
            self.by_address.insert(address, self.parts.len());
            self.parts.push(Part { size, live: 0 });
        }
    }

    fn remove(&mut self, address: u64) {
        if let Some(part) = self.by_address.remove(&address) {
            self.fragmented = self.fragmented.saturating_sub(self.parts[part].fragmented());
            self.parts[part].size = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_between_live_blocks_is_fragmented() {
        use Action::{Alloc, FreeCompleted, SegmentAlloc, SegmentFree};
        let events = [
            (0, SegmentAlloc, 1000, 100, 100),
            (0, Alloc, 1000, 60, 100),
            (0, Alloc, 1060, 10, 100),
            // 10 seconds: 30 free of 100, in a segment that is in use.
            (10, FreeCompleted, 1000, 60, 100),
            // 10 seconds: 90 free.
            (20, FreeCompleted, 1060, 10, 100),
            // 10 seconds: all of the segment is free, so it is only cached.
            (30, SegmentFree, 1000, 100, 0),
        ];
        let mut waste = WasteOverTime::default();
        for (seconds, action, address, size, held) in events {
            let event = Event { time_us: seconds * 1_000_000, ..Event::new(action, address, size) };
            waste.apply(&event, held);
        }
        assert_eq!(
            waste.until(Some(40_000_000)),
            Waste { held: 3000, cached: 300 + 900 + 1000, fragmented: 1200 }
        );
        assert_eq!(waste.until(None).held, 3000);
    }

    #[test]
    fn a_segment_that_is_freed_is_forgotten() {
        use Action::{Alloc, FreeCompleted, SegmentAlloc, SegmentFree};
        let mut waste = WasteOverTime::default();
        for (seconds, action, address, size, held) in [
            (0, SegmentAlloc, 1000, 100, 100),
            (0, Alloc, 1000, 10, 100),
            (0, FreeCompleted, 1000, 10, 100),
            (0, SegmentFree, 1000, 100, 0),
            // The same address, now of a smaller segment: 10 free in use, not 90.
            (0, SegmentAlloc, 1000, 20, 20),
            (0, Alloc, 1000, 10, 20),
            (10, FreeCompleted, 1000, 10, 20),
        ] {
            let event = Event { time_us: seconds * 1_000_000, ..Event::new(action, address, size) };
            waste.apply(&event, held);
        }
        assert_eq!(waste.until(None), Waste { held: 200, cached: 100, fragmented: 100 });
    }

    #[test]
    fn a_segment_of_the_size_of_the_address_space_does_no_harm() {
        let mut waste = WasteOverTime::default();
        for (action, address, size) in [
            (Action::SegmentAlloc, 0, u64::MAX),
            (Action::Alloc, 5, u64::MAX),
            (Action::SegmentAlloc, 10, 20),
            (Action::FreeCompleted, 5, 1),
            (Action::SegmentFree, 0, 1),
        ] {
            waste.apply(&Event { time_us: 1 << 60, ..Event::new(action, address, size) }, u64::MAX);
        }
        assert_eq!(waste.until(Some(u64::MAX)).fragmented, 0);
    }
}
