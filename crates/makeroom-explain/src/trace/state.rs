//! The memory of one device at chosen moments of its recording.

use std::collections::BTreeMap;

use makeroom_core::{Action, Bytes, DeviceTrace, FastMap, PoolId, Ranges, StackId, StreamId};

use super::history::History;

/// A block in the program's hands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveBlock {
    pub(crate) address: u64,
    pub(crate) requested: Bytes,
    pub(crate) stack: StackId,
    /// The event that allocated it; `None` when it is older than the recording.
    pub(crate) born: Option<usize>,
    /// Its free was requested and waits for a stream.
    pub(crate) is_pending: bool,
}

/// A piece of driver memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldSegment {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) stream: StreamId,
    pub(crate) is_expandable: bool,
    pub(crate) pool: PoolId,
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
    segments: FastMap<u64, HeldSegment>,
    mapped: Ranges,
    /// Stream and pool of expandable ranges, by the address at which they were first seen.
    homes: BTreeMap<u64, HeldSegment>,
}

impl Running {
    fn start(device: &DeviceTrace, history: &History) -> Self {
        let mut running = Self {
            blocks: history
                .start
                .blocks
                .iter()
                .map(|block| {
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
                })
                .collect(),
            segments: FastMap::default(),
            mapped: Ranges::default(),
            homes: device
                .segments
                .iter()
                .filter(|segment| segment.is_expandable)
                .map(|segment| {
                    (
                        segment.address.0,
                        HeldSegment {
                            address: segment.address.0,
                            size: segment.size.get(),
                            stream: segment.stream,
                            is_expandable: true,
                            pool: segment.pool,
                        },
                    )
                })
                .collect(),
        };
        for segment in &history.start.segments {
            if segment.is_expandable {
                running.mapped.insert(segment.address.0, segment.size.get());
            } else {
                running.segments.insert(
                    segment.address.0,
                    HeldSegment {
                        address: segment.address.0,
                        size: segment.size.get(),
                        stream: segment.stream,
                        is_expandable: false,
                        pool: segment.pool,
                    },
                );
            }
        }
        running
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
            Action::SegmentAlloc => {
                let pool =
                    device.events.pool(index).or_else(|| final_pool(device, address, event.size.get()));
                self.segments.insert(
                    address,
                    HeldSegment {
                        address,
                        size: event.size.get(),
                        stream: event.stream,
                        is_expandable: false,
                        pool: pool.unwrap_or_default(),
                    },
                );
            }
            Action::SegmentFree => {
                self.segments.remove(&address);
            }
            Action::SegmentMap => {
                self.mapped.insert(address, event.size.get());
                if self.home_of(address, event.size.get()).is_none() {
                    self.homes.insert(
                        address,
                        HeldSegment {
                            address,
                            size: event.size.get(),
                            stream: event.stream,
                            is_expandable: true,
                            pool: device.events.pool(index).unwrap_or_default(),
                        },
                    );
                }
            }
            Action::SegmentUnmap => self.mapped.remove(address, event.size.get()),
            Action::Snapshot | Action::OutOfMemory => {}
        }
    }

    /// Who an expandable range belongs to: the last one that begins before its end, if that reaches into it.
    fn home_of(&self, address: u64, size: u64) -> Option<&HeldSegment> {
        let (_, home) = self.homes.range(..address.saturating_add(size)).next_back()?;
        (address < home.address.saturating_add(home.size)).then_some(home)
    }

    fn state(&self) -> State {
        let mut blocks: Vec<LiveBlock> = self.blocks.values().copied().collect();
        blocks.sort_unstable_by_key(|block| block.address);
        let mut segments: Vec<HeldSegment> = self.segments.values().copied().collect();
        segments.extend(self.mapped.iter().map(|(address, size)| {
            let home = self.home_of(address, size);
            HeldSegment {
                address,
                size,
                stream: home.map_or(StreamId(0), |home| home.stream),
                is_expandable: true,
                pool: home.map_or(PoolId::DEFAULT, |home| home.pool),
            }
        }));
        segments.sort_unstable_by_key(|segment| segment.address);
        State { blocks, segments }
    }
}

/// The pool that the end of the recording names for a segment.
fn final_pool(device: &DeviceTrace, address: u64, size: u64) -> Option<PoolId> {
    let position = device.segments.binary_search_by_key(&address, |segment| segment.address.0).ok()?;
    let segment = &device.segments[position];
    (segment.size.get() == size).then_some(segment.pool)
}
