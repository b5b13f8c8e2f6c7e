//! The driver memory of one device while its recording is walked through.
//!
//! Two kinds: segments that are taken and given back whole, and ranges of addresses in which pages come and go.

use std::collections::BTreeMap;

use makeroom_core::{Action, DeviceTrace, FastMap, PoolId, Ranges, Start, StreamId};

/// A piece of driver memory.
#[derive(Clone, Copy, Debug)]
pub struct HeldSegment {
    /// Where it begins.
    pub address: u64,
    /// Its size; of a range in which pages come and go, one mapped stretch.
    pub size: u64,
    /// The stream it serves.
    pub stream: StreamId,
    /// Whether pages come and go in it.
    pub is_expandable: bool,
    /// The memory pool it belongs to.
    pub pool: PoolId,
}

/// What is taken from the driver at one moment.
#[derive(Clone, Debug, Default)]
pub struct SegmentsHeld {
    fixed: FastMap<u64, HeldSegment>,
    mapped: Ranges,
    /// Stream and pool of expandable ranges, by the address at which they were first seen.
    homes: BTreeMap<u64, HeldSegment>,
}

impl SegmentsHeld {
    /// What was there before the first event.
    pub fn at_start(device: &DeviceTrace, start: &Start) -> Self {
        let mut held = Self {
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
            ..Self::default()
        };
        for segment in &start.segments {
            if segment.is_expandable {
                held.mapped.insert(segment.address.0, segment.size.get());
            } else {
                held.fixed.insert(
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
        held
    }

    /// The event at this position happens; those that are not about segments change nothing.
    pub fn apply(&mut self, device: &DeviceTrace, index: usize) {
        let Some(event) = device.events.get(index) else { return };
        let (address, size) = (event.address.0, event.size.get());
        match event.action {
            Action::SegmentAlloc => {
                let pool = device.events.pool(index).or_else(|| final_pool(device, address, size));
                self.fixed.insert(
                    address,
                    HeldSegment {
                        address,
                        size,
                        stream: event.stream,
                        is_expandable: false,
                        pool: pool.unwrap_or_default(),
                    },
                );
            }
            Action::SegmentFree => {
                self.fixed.remove(&address);
            }
            Action::SegmentMap => {
                self.mapped.insert(address, size);
                if self.home_of(address, size).is_none() {
                    self.homes.insert(
                        address,
                        HeldSegment {
                            address,
                            size,
                            stream: event.stream,
                            is_expandable: true,
                            pool: device.events.pool(index).unwrap_or_default(),
                        },
                    );
                }
            }
            Action::SegmentUnmap => self.mapped.remove(address, size),
            Action::Alloc
            | Action::FreeRequested
            | Action::FreeCompleted
            | Action::Snapshot
            | Action::OutOfMemory => {}
        }
    }

    /// About how many pieces are remembered: what a copy costs.
    pub fn weight(&self) -> usize {
        self.fixed.len() + self.homes.len() + self.mapped.iter().count()
    }

    /// Who an expandable range belongs to: the last one that begins before its end, if that reaches into it.
    fn home_of(&self, address: u64, size: u64) -> Option<&HeldSegment> {
        let (_, home) = self.homes.range(..address.saturating_add(size)).next_back()?;
        (address < home.address.saturating_add(home.size)).then_some(home)
    }

    /// All of it, by ascending address.
    pub fn list(&self) -> Vec<HeldSegment> {
        let mut segments: Vec<HeldSegment> = self.fixed.values().copied().collect();
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
        segments
    }
}

/// The pool that the end of the recording names for a segment.
fn final_pool(device: &DeviceTrace, address: u64, size: u64) -> Option<PoolId> {
    let position = device.segments.binary_search_by_key(&address, |segment| segment.address.0).ok()?;
    let segment = &device.segments[position];
    (segment.size.get() == size).then_some(segment.pool)
}
