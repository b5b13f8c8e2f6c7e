//! What a recording did to memory over time: where the peak is, where it failed, and what was there before it
//! began.
//!
//! A recording often starts late or loses its oldest events. What was live at its start can still be told: a free
//! without an allocation was live, and so is a block that is live at the end and was never allocated in between.
//! The same holds for segments. One pass over the events finds all of that, the running totals, and the moments
//! worth a closer look.

use makeroom_core::{Action, Address, BlockState, Bytes, DeviceTrace, FastMap, PoolId, StackId, StreamId};

/// Memory that was there before the first event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OlderBlock {
    pub(crate) address: Address,
    pub(crate) requested: Bytes,
    pub(crate) stack: StackId,
    pub(crate) is_pending: bool,
}

/// Driver memory that was there before the first event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OlderSegment {
    pub(crate) address: Address,
    pub(crate) size: Bytes,
    pub(crate) stream: StreamId,
    pub(crate) is_expandable: bool,
    pub(crate) pool: PoolId,
}

/// The quietest moment of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floor {
    /// The event after which least was live.
    pub(crate) index: usize,
    /// What was live then.
    pub(crate) live: Bytes,
}

/// A recording seen as a whole.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Blocks that were live before the first event.
    pub(crate) older_blocks: Vec<OlderBlock>,
    /// Segments that were there before the first event.
    pub(crate) older_segments: Vec<OlderSegment>,
    /// Position of the event after which most was live; `None` when that was before the first event.
    pub(crate) peak: Option<usize>,
    /// What was live then.
    pub(crate) peak_live: Bytes,
    /// The most that was ever reserved; `None` when the recording has no segments.
    pub(crate) peak_reserved: Option<Bytes>,
    /// Positions of the refused allocations.
    pub(crate) failures: Vec<usize>,
    /// The quietest moment of each step.
    pub(crate) floors: Vec<Floor>,
    /// Frees of addresses that were not live, beyond what a late start explains.
    pub(crate) unmatched_frees: usize,
}

impl History {
    /// Reads a device's recording. Steps begin at the events `steps`, which ascend.
    pub(crate) fn new(device: &DeviceTrace, steps: &[usize]) -> Self {
        let mut history = Self::default();
        history.read_blocks(device, steps);
        history.find_older_segments(device);
        history.read_segments(device);
        history
    }

    /// What was live before the first event.
    pub(crate) fn live_before(&self) -> Bytes {
        self.older_blocks.iter().map(|block| block.requested).sum()
    }

    /// What was reserved before the first event.
    pub(crate) fn reserved_before(&self) -> Bytes {
        self.older_segments.iter().map(|segment| segment.size).sum()
    }

    fn read_blocks(&mut self, device: &DeviceTrace, steps: &[usize]) {
        // What the events so far say of an address: live with its size, or freed.
        let mut seen: FastMap<u64, Option<Bytes>> = FastMap::default();
        let mut freed_early: FastMap<u64, ()> = FastMap::default();
        // What is live, less what was live before the first event: that is known only at the end.
        let mut live = 0_i64;
        let mut peak = (None, 0_i64);
        let mut floor: Option<(usize, i64)> = None;
        let mut floors = Vec::new();
        let mut next_step = steps.iter().copied().peekable();
        for (index, event) in device.events.iter().enumerate() {
            if next_step.next_if_eq(&index).is_some() {
                floors.extend(floor.take());
                floor = Some((index, live));
            }
            match event.action {
                Action::Alloc => {
                    // An address that is handed out twice without a free: the free was lost with older events.
                    let lost = seen.insert(event.address.0, Some(event.size)).flatten().unwrap_or(Bytes::ZERO);
                    live = live.saturating_add(event.size.difference(lost));
                    if live > peak.1 || peak.0.is_none() && live >= 0 {
                        peak = (Some(index), live);
                    }
                }
                Action::FreeRequested if !seen.contains_key(&event.address.0) => {
                    freed_early.insert(event.address.0, ());
                }
                Action::FreeCompleted => {
                    let gone = match seen.insert(event.address.0, None) {
                        Some(Some(size)) => size,
                        Some(None) => {
                            self.unmatched_frees += 1;
                            Bytes::ZERO
                        }
                        None => {
                            self.older_blocks.push(OlderBlock {
                                address: event.address,
                                requested: event.size,
                                // The stack of a free says who freed, not who holds.
                                stack: StackId::NONE,
                                is_pending: !freed_early.contains_key(&event.address.0),
                            });
                            event.size
                        }
                    };
                    live = live.saturating_sub(gone.difference(Bytes::ZERO));
                    if let Some(lowest) = floor.as_mut().filter(|lowest| live < lowest.1) {
                        *lowest = (index, live);
                    }
                }
                Action::OutOfMemory => self.failures.push(index),
                _ => {}
            }
        }
        for block in device.segments.iter().flat_map(|segment| &segment.blocks) {
            if block.state != BlockState::Free && !seen.contains_key(&block.address.0) {
                self.older_blocks.push(OlderBlock {
                    address: block.address,
                    requested: block.requested.unwrap_or(block.size),
                    stack: block.stack,
                    is_pending: block.state == BlockState::PendingFree && !freed_early.contains_key(&block.address.0),
                });
            }
        }
        let before = self.live_before();
        let absolute = |relative: i64| {
            if relative < 0 { before - Bytes::new(relative.unsigned_abs()) } else { before + Bytes::new(relative.unsigned_abs()) }
        };
        self.peak = peak.0;
        self.peak_live = absolute(peak.1);
        self.floors = floors.into_iter().map(|(index, live)| Floor { index, live: absolute(live) }).collect();
    }

    /// Runs the segments backwards from the end: what is left before the first event was there at the start.
    fn find_older_segments(&mut self, device: &DeviceTrace) {
        let mut segments: Vec<OlderSegment> = device
            .segments
            .iter()
            .map(|segment| OlderSegment {
                address: segment.address,
                size: segment.size,
                stream: segment.stream,
                is_expandable: segment.is_expandable,
                pool: segment.pool,
            })
            .collect();
        if segments.is_empty() {
            return;
        }
        let mut by_address: FastMap<u64, usize> =
            segments.iter().enumerate().map(|(index, segment)| (segment.address.0, index)).collect();
        let mut mapped = super::ranges::Ranges::default();
        for segment in segments.iter().filter(|segment| segment.is_expandable) {
            mapped.insert(segment.address.0, segment.size.get());
        }
        let mut streams: FastMap<u64, StreamId> = FastMap::default();
        for event in device.events.iter().rev() {
            match event.action {
                Action::SegmentAlloc => {
                    if let Some(index) = by_address.remove(&event.address.0) {
                        segments[index].size = Bytes::ZERO;
                    }
                }
                Action::SegmentFree => {
                    by_address.insert(event.address.0, segments.len());
                    segments.push(OlderSegment {
                        address: event.address,
                        size: event.size,
                        stream: event.stream,
                        is_expandable: false,
                        pool: PoolId::DEFAULT,
                    });
                }
                Action::SegmentMap => mapped.remove(event.address.0, event.size.get()),
                Action::SegmentUnmap => {
                    streams.insert(event.address.0, event.stream);
                    mapped.insert(event.address.0, event.size.get());
                }
                _ => {}
            }
        }
        segments.retain(|segment| !segment.size.is_zero() && !segment.is_expandable);
        segments.extend(mapped.iter().map(|(address, size)| {
            let home = device.segments.iter().find(|segment| {
                segment.is_expandable
                    && segment.address.0 < address.saturating_add(size)
                    && address < segment.address.0.saturating_add(segment.size.get())
            });
            OlderSegment {
                address: Address(address),
                size: Bytes::new(size),
                stream: home.map_or_else(
                    || streams.get(&address).copied().unwrap_or_default(),
                    |segment| segment.stream,
                ),
                is_expandable: true,
                pool: home.map_or(PoolId::DEFAULT, |segment| segment.pool),
            }
        }));
        self.older_segments = segments;
    }

    fn read_segments(&mut self, device: &DeviceTrace) {
        let mut reserved = self.reserved_before();
        let mut peak = reserved;
        let mut has_segments = !device.segments.is_empty();
        for event in device.events.iter() {
            match event.action {
                Action::SegmentAlloc | Action::SegmentMap => {
                    has_segments = true;
                    reserved += event.size;
                    peak = peak.max(reserved);
                }
                Action::SegmentFree | Action::SegmentUnmap => reserved = reserved - event.size,
                _ => {}
            }
        }
        self.peak_reserved = has_segments.then_some(peak);
    }
}
