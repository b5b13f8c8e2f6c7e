//! Reconstructs the memory at the start of a recording.
//!
//! A recording often starts late or loses its oldest events. Its initial state can still be inferred: a block that is
//! freed without an allocation was live, and so was a block that is live at the end and never allocated in between.
//! Segments are replayed backward from the end; those left before the first event existed at the start.

use std::collections::BTreeMap;

use crate::{
    Action, Address, AddressTable, BlockState, Bytes, DeviceTrace, FastMap, PoolId, Ranges, Segment, StackId,
    StreamId,
};

/// A block that is older than the recording.
#[derive(Clone, Copy, Debug)]
pub struct OlderBlock {
    /// Its address.
    pub address: Address,
    /// Requested size.
    pub requested: Bytes,
    /// Its stream.
    pub stream: StreamId,
    /// The call stack of its allocation; known only if it still exists at the end.
    pub stack: StackId,
    /// Whether its free had been requested before the recording began.
    pub is_pending: bool,
    /// Whether `end` is the end of its memory, and not of what may be its memory.
    is_measured: bool,
    /// `UNKNOWN` if nothing is known.
    end: Address,
}

const UNKNOWN: Address = Address(u64::MAX);

impl OlderBlock {
    /// Its size with rounding; known only if it still exists at the end.
    pub fn size(&self) -> Option<Bytes> {
        self.is_measured.then(|| Bytes::new(self.end.0.saturating_sub(self.address.0)))
    }

    /// Its end, if it can be inferred: the address of the first allocation behind it while it existed, because
    /// allocators split blocks from the front.
    pub fn end(&self) -> Option<Address> {
        (self.end != UNKNOWN).then_some(self.end)
    }
}

/// Driver memory that is older than the recording.
#[derive(Clone, Copy, Debug)]
pub struct OlderSegment {
    /// Its address.
    pub address: Address,
    /// Its size. For expandable segments: one contiguous mapped range.
    pub size: Bytes,
    /// The stream it serves.
    pub stream: StreamId,
    /// Whether it grows by mapping pages.
    pub is_expandable: bool,
    /// Whether it belongs to the pool of small blocks; known only if it still exists at the end.
    pub is_small: Option<bool>,
    /// Its memory pool; the default one if unknown.
    pub pool: PoolId,
}

/// The memory before the first event.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Blocks that were live or pending, by ascending address.
    pub blocks: Vec<OlderBlock>,
    /// Segments, by ascending address.
    pub segments: Vec<OlderSegment>,
    /// Number of frees of addresses that were not live, beyond what a late start explains.
    pub unmatched_frees: usize,
    /// Where pages were mapped during the recording: a reserved range may begin before the part that was mapped at
    /// the start.
    pub mapped_later: Vec<(StreamId, Address)>,
}

impl Start {
    /// Reconstructs the start of a device's recording.
    pub fn new(device: &DeviceTrace) -> Self {
        let mut start = Self::default();
        start.find_blocks(device);
        start.find_segments(device);
        start.find_ends(device);
        start
    }

    /// Live memory.
    pub fn live(&self) -> Bytes {
        self.blocks.iter().map(|block| block.requested).sum()
    }

    /// Reserved memory.
    pub fn reserved(&self) -> Bytes {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    fn find_blocks(&mut self, device: &DeviceTrace) {
        let events = &device.events;
        let address_of = |index: u32| events.address(index as usize);
        let is_alloc = |index: u32| events.action(index as usize) == Some(Action::Alloc);
        // The last allocation or completed free at each address.
        let mut last = AddressTable::default();
        // The event before which a block was there, by address.
        let mut until: FastMap<u64, usize> = FastMap::default();
        for (index, &action) in events.actions().iter().enumerate() {
            match action {
                Action::Alloc => {
                    last.insert(index as u32, address_of);
                }
                Action::FreeCompleted => match last.insert(index as u32, address_of).map(is_alloc) {
                    Some(true) => {}
                    Some(false) => self.unmatched_frees += 1,
                    None => {
                        let Some(event) = events.get(index) else { continue };
                        until.insert(event.address.0, index);
                        self.blocks.push(OlderBlock {
                            address: event.address,
                            requested: event.size,
                            stream: event.stream,
                            // The stack of a free shows who freed it, not who allocated it.
                            stack: StackId::NONE,
                            is_pending: true,
                            is_measured: false,
                            end: UNKNOWN,
                        });
                    }
                },
                _ => {}
            }
        }
        for segment in &device.segments {
            for block in &segment.blocks {
                if block.state != BlockState::Free && last.get(block.address.0, address_of).is_none() {
                    until.insert(block.address.0, usize::MAX);
                    self.blocks.push(OlderBlock {
                        address: block.address,
                        requested: block.requested.unwrap_or(block.size),
                        stream: segment.stream,
                        stack: block.stack,
                        is_pending: block.state == BlockState::PendingFree,
                        is_measured: true,
                        end: Address(block.address.0.saturating_add(block.size.get())),
                    });
                }
            }
        }
        self.blocks.sort_unstable_by_key(|block| block.address);
        self.blocks.shrink_to_fit();
        self.find_requests(device, until);
    }

    /// A block whose free was requested during the recording was not pending before. `until` has the event before which
    /// each block was there.
    fn find_requests(&mut self, device: &DeviceTrace, mut until: FastMap<u64, usize>) {
        for (index, &action) in device.events.actions().iter().enumerate() {
            if until.is_empty() {
                return;
            }
            if action != Action::FreeRequested {
                continue;
            }
            let address = device.events.address(index);
            if until.remove(&address).is_some_and(|until| index < until) {
                let at = self.blocks.partition_point(|block| block.address.0 < address);
                let same = self.blocks[at..].iter_mut().take_while(|block| block.address.0 == address);
                same.for_each(|block| block.is_pending = false);
            }
        }
    }

    /// Finds the first allocation behind each older block while that block exists.
    fn find_ends(&mut self, device: &DeviceTrace) {
        // The end of the gap behind each such block: the next older block, or the end of its segment.
        let mut open: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
        for (index, block) in self.blocks.iter().enumerate().filter(|(_, block)| block.end().is_none()) {
            let next = self.blocks.get(index + 1).map_or(u64::MAX, |next| next.address.0);
            let after = self.segments.partition_point(|segment| segment.address <= block.address);
            let segment = after.checked_sub(1).map(|position| &self.segments[position]);
            let end = segment.map_or(0, |segment| segment.address.0.saturating_add(segment.size.get()));
            open.insert(block.address.0, (index, next.min(end)));
        }
        for event in device.events.iter() {
            if open.is_empty() {
                return;
            }
            match event.action {
                Action::Alloc => {
                    let before = open.range(..event.address.0).next_back();
                    let Some((&before, &(index, gap_end))) = before else { continue };
                    if event.address.0 < gap_end {
                        self.blocks[index].end = event.address;
                        open.remove(&before);
                    }
                }
                Action::FreeCompleted => {
                    open.remove(&event.address.0);
                }
                _ => {}
            }
        }
    }

    fn find_segments(&mut self, device: &DeviceTrace) {
        let mut fixed: FastMap<u64, OlderSegment> = FastMap::default();
        let mut mapped = Ranges::default();
        for segment in &device.segments {
            if segment.is_expandable {
                mapped.insert(segment.address.0, segment.size.get());
            } else {
                fixed.insert(
                    segment.address.0,
                    OlderSegment {
                        address: segment.address,
                        size: segment.size,
                        stream: segment.stream,
                        is_expandable: false,
                        is_small: Some(segment.is_small),
                        pool: segment.pool,
                    },
                );
            }
        }
        let mut streams: FastMap<u64, StreamId> = FastMap::default();
        let is_of_segment = |action: &Action| {
            use Action::{SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap};
            matches!(action, SegmentAlloc | SegmentFree | SegmentMap | SegmentUnmap)
        };
        let actions = device.events.actions().iter().enumerate().rev();
        let indices = actions.filter(|(_, action)| is_of_segment(action)).map(|(index, _)| index);
        for event in indices.filter_map(|index| device.events.get(index)) {
            match event.action {
                Action::SegmentAlloc => {
                    fixed.remove(&event.address.0);
                }
                Action::SegmentFree => {
                    fixed.insert(
                        event.address.0,
                        OlderSegment {
                            address: event.address,
                            size: event.size,
                            stream: event.stream,
                            is_expandable: false,
                            is_small: None,
                            pool: PoolId::DEFAULT,
                        },
                    );
                }
                Action::SegmentMap => {
                    self.mapped_later.push((event.stream, event.address));
                    mapped.remove(event.address.0, event.size.get());
                }
                Action::SegmentUnmap => {
                    streams.insert(event.address.0, event.stream);
                    mapped.insert(event.address.0, event.size.get());
                }
                _ => {}
            }
        }
        let mut expandable: Vec<&Segment> =
            device.segments.iter().filter(|segment| segment.is_expandable).collect();
        expandable.sort_unstable_by_key(|segment| segment.address);
        self.segments = fixed.into_values().collect();
        self.segments.extend(mapped.iter().map(|(address, size)| {
            let after =
                expandable.partition_point(|segment| segment.address.0 < address.saturating_add(size));
            let home = after
                .checked_sub(1)
                .map(|position| expandable[position])
                .filter(|segment| address < segment.address.0.saturating_add(segment.size.get()));
            let stream = streams.get(&address).copied().unwrap_or_default();
            OlderSegment {
                address: Address(address),
                size: Bytes::new(size),
                stream: home.map_or(stream, |segment| segment.stream),
                is_expandable: true,
                is_small: home.map(|segment| segment.is_small),
                pool: home.map_or(PoolId::DEFAULT, |segment| segment.pool),
            }
        }));
        self.segments.sort_unstable_by_key(|segment| segment.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, Event};

    fn event(action: Action, address: u64, size: u64) -> Event {
        Event {
            action,
            address: Address(address),
            size: Bytes::new(size),
            stream: StreamId(0),
            time_us: 0,
            stack: StackId::NONE,
        }
    }

    #[test]
    fn frees_without_allocations_and_blocks_without_events_were_there() {
        let mut device = DeviceTrace::default();
        for (action, address) in [
            (Action::FreeRequested, 512),
            (Action::FreeCompleted, 512),
            (Action::Alloc, 1024),
            (Action::FreeCompleted, 9999),
        ] {
            device.events.push(event(action, address, 100));
        }
        let blocks = [512, 1024, 2048].map(|address| Block {
            address: Address(address),
            size: Bytes::new(512),
            requested: Some(Bytes::new(100)),
            state: if address == 512 { BlockState::Free } else { BlockState::Live },
            stack: StackId::NONE,
        });
        device.segments.push(Segment { size: Bytes::mib(2), blocks: blocks.to_vec(), ..Segment::default() });
        let start = Start::new(&device);
        let found: Vec<(u64, bool)> =
            start.blocks.iter().map(|block| (block.address.0, block.is_pending)).collect();
        assert_eq!(found, [(512, false), (2048, false), (9999, true)]);
        assert_eq!(start.reserved(), Bytes::mib(2));
    }

    #[test]
    fn segments_run_backwards_from_the_end() {
        let mut device = DeviceTrace::default();
        device.events.push(event(Action::SegmentFree, 1 << 30, 77));
        device.events.push(event(Action::SegmentAlloc, 1 << 30, 88));
        let segment = Segment { address: Address(1 << 30), size: Bytes::new(88), ..Segment::default() };
        device.segments.push(segment);
        let start = Start::new(&device);
        assert_eq!(start.segments.len(), 1);
        assert_eq!(start.segments[0].size, Bytes::new(77));
    }
}
