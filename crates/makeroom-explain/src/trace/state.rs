//! The memory of one device at chosen moments of its recording.

use makeroom_core::{Action, Bytes, DeviceTrace, FastMap, StackId};

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
    let mut running = Running::start(device, history);
    let mut states = Vec::with_capacity(moments.len());
    let mut next_event = 0;
    for moment in moments {
        let until = moment.map_or(0, |index| index + 1);
        while next_event < until {
            running.apply(device, next_event);
            next_event += 1;
        }
        states.push(running.state());
    }
    states
}

struct Running {
    blocks: FastMap<u64, LiveBlock>,
    segments: SegmentsHeld,
}

impl Running {
    fn start(device: &DeviceTrace, history: &History) -> Self {
        let blocks = history.start.blocks.iter().map(|block| {
            (
                block.address.0,
                LiveBlock {
                    address: block.address.0,
                    requested: block.requested,
                    stack: block.stack,
                    born: None,
                    is_pending: block.is_pending,
                },
            )
        });
        Self { blocks: blocks.collect(), segments: SegmentsHeld::at_start(device, &history.start) }
    }

    fn apply(&mut self, device: &DeviceTrace, index: usize) {
        let Some(event) = device.events.get(index) else { return };
        let address = event.address.0;
        match event.action {
            Action::Alloc => {
                self.blocks.insert(
                    address,
                    LiveBlock {
                        address,
                        requested: event.size,
                        stack: event.stack,
                        born: Some(index),
                        is_pending: false,
                    },
                );
            }
            Action::FreeRequested => {
                if let Some(block) = self.blocks.get_mut(&address) {
                    block.is_pending = true;
                }
            }
            Action::FreeCompleted => {
                self.blocks.remove(&address);
            }
            Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap => {
                self.segments.apply(device, index);
            }
            Action::Snapshot | Action::OutOfMemory => {}
        }
    }

    fn state(&self) -> State {
        let mut blocks: Vec<LiveBlock> = self.blocks.values().copied().collect();
        blocks.sort_unstable_by_key(|block| block.address);
        State { blocks, segments: self.segments.list() }
    }
}
