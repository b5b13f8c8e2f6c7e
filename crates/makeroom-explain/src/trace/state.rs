//! The memory of one device at chosen moments of its recording.

use makeroom_core::{Action, AddressTable, Bytes, DeviceTrace, StackId, Start};

use super::history::History;
use super::lifetimes::Allocation;
use super::segments::{HeldSegment, SegmentsHeld};
use super::sites::{HeldByStack, by_stack};

/// A block in the program's hands.
#[derive(Clone, Copy, Debug)]
pub struct LiveBlock {
    /// Where it begins.
    pub address: u64,
    /// What the program asked for.
    pub requested: Bytes,
    /// Who asked for it.
    pub stack: StackId,
    held: Held,
}

impl LiveBlock {
    /// A block of an allocation that is known.
    pub fn new(allocation: &Allocation, is_pending: bool) -> Self {
        let pending = if is_pending { Held::PENDING } else { 0 };
        let held = allocation.born.map_or(Held::older(0, false), Held::allocated);
        Self {
            address: allocation.address,
            requested: Bytes::new(allocation.requested),
            stack: allocation.stack,
            held: Held(held.0 | pending),
        }
    }

    /// The event that allocated it; `None` when it is older than the recording.
    pub fn born(&self) -> Option<usize> {
        (!self.held.has(Held::OLDER)).then_some(self.held.position())
    }

    /// Whether its free was requested and waits for a stream.
    pub fn is_pending(&self) -> bool {
        self.held.has(Held::PENDING)
    }
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
    at_moments(device, history, moments, Running::state)
}

/// What is live by stack after each of `moments`, which ascend. Unlike states, these take no memory per block.
pub(crate) fn stacks_at(
    device: &DeviceTrace,
    history: &History,
    moments: &[Option<usize>],
) -> Vec<HeldByStack> {
    at_moments(device, history, moments, |running| by_stack(running.live_blocks()))
}

fn at_moments<'trace, T>(
    device: &'trace DeviceTrace,
    history: &'trace History,
    moments: &[Option<usize>],
    view: impl Fn(&Running<'trace>) -> T,
) -> Vec<T> {
    let mut running = Running::start(device, &history.start);
    let mut views = Vec::with_capacity(moments.len());
    let mut next_event = 0;
    for moment in moments {
        let until = moment.map_or(0, |index| index + 1);
        while next_event < until {
            running.apply(next_event);
            next_event += 1;
        }
        views.push(view(&running));
    }
    views
}

struct Running<'trace> {
    device: &'trace DeviceTrace,
    start: &'trace Start,
    /// Live blocks by address. A recording can have as many as events, so the rest of a block is looked up for the
    /// moments that are asked for.
    blocks: AddressTable<Held>,
    segments: SegmentsHeld,
}

/// A live block: the event that allocated it, or its position among the blocks that are older than the recording.
#[derive(Clone, Copy, Debug)]
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

    fn address(self, device: &DeviceTrace, start: &Start) -> u64 {
        if self.has(Self::OLDER) {
            start.blocks.get(self.position()).map_or(0, |block| block.address.0)
        } else {
            device.events.address(self.position())
        }
    }
}

impl<'trace> Running<'trace> {
    fn start(device: &'trace DeviceTrace, start: &'trace Start) -> Self {
        let mut blocks = AddressTable::default();
        for (position, block) in start.blocks.iter().enumerate() {
            blocks.insert(Held::older(position, block.is_pending), |held| held.address(device, start));
        }
        Self { device, start, blocks, segments: SegmentsHeld::at_start(device, start) }
    }

    fn apply(&mut self, index: usize) {
        let Some(event) = self.device.events.get(index) else { return };
        let (address, device, start) = (event.address.0, self.device, self.start);
        let address_of = |held: Held| held.address(device, start);
        match event.action {
            Action::Alloc => {
                self.blocks.insert(Held::allocated(index), address_of);
            }
            Action::FreeRequested => {
                if let Some(block) = self.blocks.get_mut(address, address_of) {
                    block.0 |= Held::PENDING;
                }
            }
            Action::FreeCompleted => {
                self.blocks.remove(address, address_of);
            }
            Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap => {
                self.segments.apply(self.device, index);
            }
            Action::Snapshot | Action::OutOfMemory => {}
        }
    }

    fn block(&self, held: Held) -> Option<LiveBlock> {
        let position = held.position();
        let is_older = held.has(Held::OLDER);
        let (requested, stack) = if is_older {
            let block = self.start.blocks.get(position)?;
            (block.requested, block.stack)
        } else {
            let event = self.device.events.get(position)?;
            (event.size, event.stack)
        };
        let address = held.address(self.device, self.start);
        Some(LiveBlock { address, requested, stack, held })
    }

    fn live_blocks(&self) -> impl Iterator<Item = LiveBlock> {
        self.blocks.iter().filter_map(|held| self.block(held))
    }

    fn state(&self) -> State {
        // `filter_map` does not know that it keeps every block.
        let mut blocks = Vec::with_capacity(self.blocks.len());
        blocks.extend(self.live_blocks());
        blocks.sort_unstable_by_key(|block: &LiveBlock| block.address);
        State { blocks, segments: self.segments.list() }
    }
}
