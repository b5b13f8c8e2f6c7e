//! The memory of one device at chosen moments of its recording.

use makeroom_core::{Action, Bytes, DeviceTrace, FastMap, StackId, Start};

use super::history::History;
use super::segments::{HeldSegment, SegmentsHeld};

/// A block in the program's hands.
#[derive(Clone, Copy, Debug)]
pub struct LiveBlock {
    /// Where it begins.
    pub address: u64,
    /// What the program asked for.
    pub requested: Bytes,
    /// Who asked for it.
    pub stack: StackId,
    /// The event that allocated it; `None` when it is older than the recording.
    pub born: Option<usize>,
    /// Its free was requested and waits for a stream.
    pub is_pending: bool,
}

/// Everything that is there after an event.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// By ascending address.
    pub(crate) blocks: Vec<LiveBlock>,
    /// By ascending address.
    pub(crate) segments: Vec<HeldSegment>,
}

impl State {
    /// What is live.
    pub(crate) fn live(&self) -> Bytes {
        self.blocks.iter().map(|block| block.requested).sum()
    }
}

/// The states after each of `moments`, which ascend. A moment of `None` is before the first event.
pub(crate) fn states_at(device: &DeviceTrace, history: &History, moments: &[Option<usize>]) -> Vec<State> {
    let mut running = Running::start(device, &history.start);
    let mut states = Vec::with_capacity(moments.len());
    let mut next_event = 0;
    for moment in moments {
        let until = moment.map_or(0, |index| index + 1);
        while next_event < until {
            running.apply(next_event);
            next_event += 1;
        }
        states.push(running.state());
    }
    states
}

struct Running<'trace> {
    device: &'trace DeviceTrace,
    start: &'trace Start,
    /// Live blocks by address. A recording can have as many as events, so the rest of a block is looked up for the
    /// moments that are asked for.
    blocks: FastMap<u64, Held>,
    segments: SegmentsHeld,
}

/// A live block: the event that allocated it, or its position among the blocks that are older than the recording.
#[derive(Clone, Copy)]
struct Held(u64);

impl Held {
    const PENDING: u64 = 1;
    const OLDER: u64 = 2;

    fn allocated(event: usize) -> Self {
        Self((event as u64) << 2)
    }

    fn older(position: usize, is_pending: bool) -> Self {
        Self((position as u64) << 2 | Self::OLDER | if is_pending { Self::PENDING } else { 0 })
    }

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    fn position(self) -> usize {
        (self.0 >> 2) as usize
    }
}

impl<'trace> Running<'trace> {
    fn start(device: &'trace DeviceTrace, start: &'trace Start) -> Self {
        let older = start.blocks.iter().enumerate();
        let blocks =
            older.map(|(position, block)| (block.address.0, Held::older(position, block.is_pending)));
        Self { device, start, blocks: blocks.collect(), segments: SegmentsHeld::at_start(device, start) }
    }

    fn apply(&mut self, index: usize) {
        let Some(event) = self.device.events.get(index) else { return };
        let address = event.address.0;
        match event.action {
            Action::Alloc => {
                self.blocks.insert(address, Held::allocated(index));
            }
            Action::FreeRequested => {
                if let Some(block) = self.blocks.get_mut(&address) {
                    block.0 |= Held::PENDING;
                }
            }
            Action::FreeCompleted => {
                self.blocks.remove(&address);
            }
            Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap => {
                self.segments.apply(self.device, index);
            }
            Action::Snapshot | Action::OutOfMemory => {}
        }
    }

    fn block(&self, address: u64, held: Held) -> Option<LiveBlock> {
        let position = held.position();
        let is_older = held.has(Held::OLDER);
        let (requested, stack) = if is_older {
            let block = self.start.blocks.get(position)?;
            (block.requested, block.stack)
        } else {
            let event = self.device.events.get(position)?;
            (event.size, event.stack)
        };
        let born = (!is_older).then_some(position);
        Some(LiveBlock { address, requested, stack, born, is_pending: held.has(Held::PENDING) })
    }

    fn state(&self) -> State {
        // `filter_map` does not know that it keeps every block.
        let mut blocks = Vec::with_capacity(self.blocks.len());
        blocks.extend(self.blocks.iter().filter_map(|(&address, &held)| self.block(address, held)));
        blocks.sort_unstable_by_key(|block: &LiveBlock| block.address);
        State { blocks, segments: self.segments.list() }
    }
}
