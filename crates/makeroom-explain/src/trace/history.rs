//! What a recording did to memory over time: running totals, where the peak is, where it failed, and the quietest
//! moment of each step. What was there before it began is [`Start`]'s to say.

use makeroom_core::{Action, Bytes, DeviceTrace, FastMap, Start};

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
    /// What was there before the first event.
    pub(crate) start: Start,
    /// Position of the event after which most was live; `None` when that was before the first event.
    pub(crate) peak: Option<usize>,
    /// What was live then.
    pub(crate) peak_live: Bytes,
    /// The most that was ever reserved; `None` when the recording has no segments.
    pub(crate) peak_reserved: Option<Bytes>,
    /// The most that was reserved before the first failed allocation, or at all.
    pub(crate) most_reserved: Bytes,
    /// Positions of the refused allocations.
    pub(crate) failures: Vec<usize>,
    /// The quietest moment of each step.
    pub(crate) floors: Vec<Floor>,
}

impl History {
    /// Reads a device's recording. Steps begin at the events `steps`, which ascend.
    pub(crate) fn new(device: &DeviceTrace, steps: &[usize]) -> Self {
        let mut history = Self { start: Start::new(device), ..Self::default() };
        history.read_blocks(device, steps);
        history.read_segments(device);
        history
    }

    fn read_blocks(&mut self, device: &DeviceTrace, steps: &[usize]) {
        let mut sizes: FastMap<u64, Bytes> =
            self.start.blocks.iter().map(|block| (block.address.0, block.requested)).collect();
        let mut live = self.start.live();
        let mut floor: Option<Floor> = None;
        let mut next_step = steps.iter().copied().peekable();
        self.peak_live = live;
        for (index, event) in device.events.iter().enumerate() {
            if next_step.next_if_eq(&index).is_some() {
                self.floors.extend(floor.take());
                floor = Some(Floor { index, live });
            }
            match event.action {
                Action::Alloc => {
                    // An address that is handed out twice without a free: the free was lost with older events.
                    let lost = sizes.insert(event.address.0, event.size).unwrap_or(Bytes::ZERO);
                    live = live - lost + event.size;
                    if live > self.peak_live || self.peak.is_none() && live >= self.peak_live {
                        self.peak_live = live;
                        self.peak = Some(index);
                    }
                }
                Action::FreeCompleted => {
                    live = live - sizes.remove(&event.address.0).unwrap_or(Bytes::ZERO);
                    if let Some(lowest) = floor.as_mut().filter(|lowest| live < lowest.live) {
                        *lowest = Floor { index, live };
                    }
                }
                Action::OutOfMemory => self.failures.push(index),
                _ => {}
            }
        }
    }

    fn read_segments(&mut self, device: &DeviceTrace) {
        let mut reserved = self.start.reserved();
        let mut peak = reserved;
        let mut has_segments = !device.segments.is_empty();
        let mut before_failure = None;
        for event in device.events.iter() {
            match event.action {
                Action::SegmentAlloc | Action::SegmentMap => {
                    has_segments = true;
                    reserved += event.size;
                    peak = peak.max(reserved);
                }
                Action::SegmentFree | Action::SegmentUnmap => reserved = reserved - event.size,
                Action::OutOfMemory => before_failure = before_failure.or(Some(peak)),
                _ => {}
            }
        }
        self.most_reserved = before_failure.unwrap_or(peak);
        self.peak_reserved = has_segments.then_some(peak);
    }
}
