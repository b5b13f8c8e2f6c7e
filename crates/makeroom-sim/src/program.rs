//! A program's allocations independent of their addresses: by number, in order.
//!
//! A recording names blocks by address. Addresses are results of the recorded allocator, not inputs of the program, so
//! they are replaced by numbers once. Every run under another allocator is then a pass over two arrays.

use std::collections::HashSet;

use makeroom_core::{Action, DeviceTrace, FastHasher, FastMap, PoolId, StackId, Stacks, Start};

use crate::homes::{Homes, PoolFinder};
use crate::pytorch::Request;
use crate::releases::empty_cache_calls;

/// An allocation of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Requested bytes.
    pub size: u64,
    /// The stream.
    pub stream: u64,
    /// The memory pool, as a position in [`Program::pools`].
    pub pool: u32,
    /// The address in the recording.
    pub address: u64,
    /// The stack of the request.
    pub stack: StackId,
}

/// An operation of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An allocation that succeeded in the recorded run.
    Allocate(u32),
    /// An allocation that failed in the recorded run.
    AllocateRefused(u32),
    /// A free that is complete immediately.
    Free(u32),
    /// A free that is pending on a stream.
    FreeRequested(u32),
    /// A pending free is complete.
    FreeCompleted(u32),
    /// A request to return unused memory to the driver.
    EmptyCache,
}

/// A program on one device.
///
/// An allocation and its free take 32 + 2 × 12 bytes.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The memory pools, the default one first; empty if there is no other.
    pub pools: Vec<PoolId>,
    /// All allocations, including failed ones, indexed by number. Those older than the recording come first.
    pub allocations: Vec<Allocation>,
    /// The number of allocations older than the recording.
    pub older: u32,
    /// Its operations, in order.
    pub steps: Vec<Step>,
    /// The recorded event of each step.
    pub events: Vec<u32>,
    /// The number of skipped events, which name an unknown address.
    pub lost: usize,
    /// Duration of the recorded run from its first event to its last, in microseconds; 0 if it has no clock.
    pub recorded_us: u64,
    /// The first step in the second half of that time.
    pub half: usize,
}

impl Program {
    /// Extracts the program from a recording.
    pub fn new(device: &DeviceTrace, stacks: &Stacks, start: &Start) -> Self {
        Self::with_homes(device, stacks, start, &Homes::new(device))
    }

    /// The same with known segments and pools.
    pub(crate) fn with_homes(device: &DeviceTrace, stacks: &Stacks, start: &Start, homes: &Homes) -> Self {
        let reader = Reader {
            device,
            stacks,
            program: Self::default(),
            at: FastMap::default(),
            pools: PoolFinder::new(homes),
            pool_positions: FastMap::default(),
        };
        reader.read(start)
    }

    /// Peak live bytes, including memory that was live at the start.
    pub fn peak_live(&self) -> u64 {
        self.live().fold(self.live_at_start(), u64::max)
    }

    /// The same if failed requests succeed and are freed immediately, as in a replay.
    pub fn peak_live_if_granted(&self) -> u64 {
        let asked = self.steps.iter().zip(self.live()).map(|(step, live)| match *step {
            Step::AllocateRefused(number) => live.saturating_add(self.size(number)),
            _ => live,
        });
        asked.fold(self.live_at_start(), u64::max)
    }

    /// The number of requests that failed in the recorded run.
    pub fn refused(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::AllocateRefused(_))).count()
    }

    /// The number of allocations, including those older than the recording.
    pub fn granted(&self) -> usize {
        self.allocations.len() - self.refused()
    }

    /// The bytes of allocations older than the recording.
    pub fn live_at_start(&self) -> u64 {
        let older = &self.allocations[..self.older as usize];
        older.iter().fold(0, |live, older| live.saturating_add(older.size))
    }

    /// Live bytes after each step.
    pub fn live(&self) -> impl Iterator<Item = u64> + '_ {
        self.steps.iter().scan(self.live_at_start(), |live, step| {
            match *step {
                Step::Allocate(number) => *live = live.saturating_add(self.size(number)),
                Step::Free(number) | Step::FreeCompleted(number) => {
                    *live = live.saturating_sub(self.size(number));
                }
                Step::AllocateRefused(_) | Step::FreeRequested(_) | Step::EmptyCache => {}
            }
            Some(*live)
        })
    }

    /// The request for an allocation.
    pub fn request(&self, number: u32) -> Request {
        let Allocation { size, stream, pool, .. } = self.allocations[number as usize];
        let pool = self.pools.get(pool as usize).copied().unwrap_or(PoolId::DEFAULT);
        Request { size, stream, pool }
    }

    /// The size of an allocation.
    pub fn size(&self, number: u32) -> u64 {
        self.allocations[number as usize].size
    }
}

struct Reader<'trace> {
    device: &'trace DeviceTrace,
    stacks: &'trace Stacks,
    program: Program,
    /// The live allocation at an address.
    at: FastMap<u64, u32>,
    pools: PoolFinder<'trace>,
    pool_positions: FastMap<PoolId, u32>,
}

impl Reader<'_> {
    fn read(mut self, start: &Start) -> Program {
        self.read_older(start);
        let empties: HashSet<u32, FastHasher> =
            empty_cache_calls(self.device, self.stacks, start, self.pools.homes()).into_iter().collect();
        for (index, event) in self.device.events.iter().enumerate() {
            let event_index = index as u32;
            match event.action {
                Action::Alloc => {
                    let pool =
                        self.device.events.pool(index).unwrap_or_else(|| self.pools.pool_of(event.address.0));
                    let pool = self.position(pool);
                    let number = self.add(Allocation {
                        size: event.size.get(),
                        stream: event.stream.0,
                        pool,
                        address: event.address.0,
                        stack: event.stack,
                    });
                    // An address that is allocated again without a free: its free was lost.
                    if let Some(lost) = self.at.insert(event.address.0, number) {
                        self.program.lost += 1;
                        self.push(event_index, Step::Free(lost));
                    }
                    self.push(event_index, Step::Allocate(number));
                }
                Action::OutOfMemory => {
                    let pool = self.position(self.device.events.pool(index).unwrap_or(PoolId::DEFAULT));
                    let number = self.add(Allocation {
                        size: event.size.get(),
                        stream: event.stream.0,
                        pool,
                        address: 0,
                        stack: event.stack,
                    });
                    self.push(event_index, Step::AllocateRefused(number));
                }
                Action::FreeRequested => match self.at.get(&event.address.0) {
                    Some(&number) => self.push(event_index, Step::FreeRequested(number)),
                    None => self.program.lost += 1,
                },
                Action::FreeCompleted => match self.at.remove(&event.address.0) {
                    Some(number) => self.complete(event_index, number),
                    None => self.program.lost += 1,
                },
                Action::SegmentFree | Action::SegmentUnmap => {
                    self.pools.see(index);
                    if empties.contains(&event_index) {
                        self.push(event_index, Step::EmptyCache);
                    }
                }
                Action::SegmentAlloc | Action::SegmentMap => self.pools.see(index),
                Action::Snapshot => {}
            }
        }
        self.read_times();
        self.program
    }

    /// The duration, and the step at which its second half begins.
    fn read_times(&mut self) {
        let times = || self.device.events.iter().map(|event| event.time_us).filter(|&time| time > 0);
        let (first, last) = (times().next().unwrap_or(0), times().next_back().unwrap_or(0));
        self.program.recorded_us = last.saturating_sub(first);
        let middle = first + self.program.recorded_us / 2;
        let time_of = |&event: &u32| self.device.events.get(event as usize).map_or(0, |event| event.time_us);
        self.program.half = self.program.events.partition_point(|event| time_of(event) < middle);
    }

    /// Adds memory that was live before the first event.
    fn read_older(&mut self, start: &Start) {
        self.program.older = start.blocks.len() as u32;
        for block in &start.blocks {
            let pool = self.position(self.pools.pool_of(block.address.0));
            let number = self.add(Allocation {
                size: block.requested.get(),
                stream: block.stream.0,
                pool,
                address: block.address.0,
                stack: block.stack,
            });
            self.at.insert(block.address.0, number);
        }
    }

    /// The position of a pool in the program's list.
    fn position(&mut self, pool: PoolId) -> u32 {
        if pool == PoolId::DEFAULT {
            return 0;
        }
        let pools = &mut self.program.pools;
        *self.pool_positions.entry(pool).or_insert_with(|| {
            if pools.is_empty() {
                pools.push(PoolId::DEFAULT);
            }
            pools.push(pool);
            pools.len() as u32 - 1
        })
    }

    fn add(&mut self, allocation: Allocation) -> u32 {
        self.program.allocations.push(allocation);
        self.program.allocations.len() as u32 - 1
    }

    /// Joins a free and its completion into one step if they are adjacent: few frees wait for a stream.
    fn complete(&mut self, event: u32, number: u32) {
        match self.program.steps.last_mut() {
            Some(last) if *last == Step::FreeRequested(number) => *last = Step::Free(number),
            _ => self.push(event, Step::FreeCompleted(number)),
        }
    }

    fn push(&mut self, event: u32, step: Step) {
        self.program.steps.push(step);
        self.program.events.push(event);
    }
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Address, Bytes, Event, StreamId};

    use super::*;

    #[test]
    fn a_refusal_keeps_the_pool_that_the_recorder_wrote() {
        let mut device = DeviceTrace::default();
        let event = Event {
            action: Action::OutOfMemory,
            address: Address(0),
            size: Bytes::mib(3),
            stream: StreamId(0),
            time_us: 0,
            stack: StackId::NONE,
        };
        device.events.push_in_pool(event, PoolId(0, 4));
        let program = Program::new(&device, &Stacks::default(), &Start::new(&device));
        assert_eq!(program.request(0).pool, PoolId(0, 4));
        assert_eq!(program.steps, [Step::AllocateRefused(0)]);
    }
}
