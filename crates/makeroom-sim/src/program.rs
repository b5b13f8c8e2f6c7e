//! A program's allocations independent of their addresses: by number, in order.
//!
//! A recording names blocks by address. Addresses are results of the recorded allocator, not inputs of the program, so
//! they are replaced by numbers once. Every run under another allocator is then a pass over two arrays.
//!
//! Models keep their data by *slot*: the smallest set of numbers in which no two allocations that exist at the same time
//! share one. A model's data then grows with live allocations, not with all of them, and stays in the CPU's caches.

use std::collections::HashSet;

use makeroom_core::{Action, DeviceTrace, Event, FastHasher, FastMap, PoolId, StackId, Stacks, Start};

use crate::pytorch::Request;
use crate::releases::empty_cache_calls;
use crate::segment_lifetimes::{PoolFinder, SegmentLifetimes};

/// An allocation of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Requested bytes.
    pub size: u64,
    /// The stream, as a position in [`Program::streams`].
    pub stream: u32,
    /// The memory pool, as a position in [`Program::pools`].
    pub pool: u32,
    /// The slot for a model's data: no two allocations that exist at the same time have the same one.
    pub slot: u32,
    /// The stack of the request.
    pub stack: StackId,
}

const _: () = assert!(size_of::<Allocation>() == 24);

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
/// An allocation and its free take 24 + 2 × 12 bytes.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The streams, in the order of their first allocation; stream 0 if empty.
    pub streams: Vec<u64>,
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
        Self::with_lifetimes(device, stacks, start, &SegmentLifetimes::new(device))
    }

    /// The same with known segments and pools.
    pub(crate) fn with_lifetimes(
        device: &DeviceTrace,
        stacks: &Stacks,
        start: &Start,
        lifetimes: &SegmentLifetimes,
    ) -> Self {
        let mut reader = Reader::new(device, stacks, start, lifetimes);
        for (index, event) in device.events.iter().enumerate() {
            reader.see(index, &event, device.events.pool(index));
        }
        reader.program
    }

    /// The same for a recording that is not needed any more: its events make room for the program.
    pub(crate) fn from_last(device: DeviceTrace, stacks: &Stacks, start: &Start) -> Self {
        let lifetimes = SegmentLifetimes::new(&device);
        let mut reader = Reader::new(&device, stacks, start, &lifetimes);
        for (index, (event, pool)) in device.events.into_events().enumerate() {
            reader.see(index, &event, pool);
        }
        reader.program
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
        let stream = self.streams.get(stream as usize).copied().unwrap_or(0);
        let pool = self.pools.get(pool as usize).copied().unwrap_or(PoolId::DEFAULT);
        Request { size, stream, pool }
    }

    /// The slot of an allocation.
    pub fn slot(&self, number: u32) -> u32 {
        self.allocations[number as usize].slot
    }

    /// The size of an allocation.
    pub fn size(&self, number: u32) -> u64 {
        self.allocations[number as usize].size
    }
}

struct Reader<'trace> {
    program: Program,
    /// The live allocation at an address.
    at: FastMap<u64, u32>,
    /// Slots of allocations that are freed, and the number of all slots.
    vacant: Vec<u32>,
    slots: u32,
    pools: PoolFinder<'trace>,
    pool_positions: FastMap<PoolId, u32>,
    stream_positions: FastMap<u64, u32>,
    /// The releases that the program requested.
    empties: HashSet<u32, FastHasher>,
    /// When the second half of the recorded time begins.
    middle_us: u64,
    is_late: bool,
}

impl<'trace> Reader<'trace> {
    /// A reader that has seen the memory older than the recording.
    fn new(
        device: &DeviceTrace,
        stacks: &Stacks,
        start: &Start,
        lifetimes: &'trace SegmentLifetimes,
    ) -> Self {
        let times = || device.events.iter().map(|event| event.time_us).filter(|&time| time > 0);
        let (first, last) = (times().next().unwrap_or(0), times().next_back().unwrap_or(0));
        let recorded_us = last.saturating_sub(first);
        let mut reader = Self {
            program: Program { recorded_us, ..Program::default() },
            at: FastMap::default(),
            vacant: Vec::new(),
            slots: 0,
            pools: PoolFinder::new(lifetimes),
            pool_positions: FastMap::default(),
            stream_positions: FastMap::default(),
            empties: empty_cache_calls(device, stacks, start, lifetimes).into_iter().collect(),
            middle_us: first + recorded_us / 2,
            is_late: false,
        };
        reader.read_older(start);
        reader
    }

    /// Adds an event; `pool` if the recorder writes pools.
    fn see(&mut self, index: usize, event: &Event, pool: Option<PoolId>) {
        let event_index = index as u32;
        if !self.is_late {
            self.program.half = self.program.steps.len();
            self.is_late = event.time_us >= self.middle_us;
        }
        match event.action {
            Action::Alloc => {
                let pool = pool.unwrap_or_else(|| self.pools.pool_of(event.address.0));
                // An address that is allocated again without a free: its free was lost.
                if let Some(lost) = self.at.remove(&event.address.0) {
                    self.program.lost += 1;
                    self.push(event_index, Step::Free(lost));
                    self.vacate(lost);
                }
                let number = self.add(event.size.get(), event.stream.0, pool, event.stack);
                self.at.insert(event.address.0, number);
                self.push(event_index, Step::Allocate(number));
            }
            Action::OutOfMemory => {
                let pool = pool.unwrap_or(PoolId::DEFAULT);
                let number = self.add(event.size.get(), event.stream.0, pool, event.stack);
                self.push(event_index, Step::AllocateRefused(number));
                // A run frees it immediately.
                self.vacate(number);
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
                if self.empties.contains(&event_index) {
                    self.push(event_index, Step::EmptyCache);
                }
            }
            Action::SegmentAlloc | Action::SegmentMap => self.pools.see(index),
            Action::Snapshot => {}
        }
    }

    /// Adds memory that was live before the first event. Its slots are its numbers.
    fn read_older(&mut self, start: &Start) {
        self.program.older = start.blocks.len() as u32;
        for block in &start.blocks {
            let pool = self.pools.pool_of(block.address.0);
            let number = self.add(block.requested.get(), block.stream.0, pool, block.stack);
            self.at.insert(block.address.0, number);
        }
    }

    /// The position of a pool in the program's list.
    fn pool_position(&mut self, pool: PoolId) -> u32 {
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

    /// The position of a stream in the program's list.
    fn stream_position(&mut self, stream: u64) -> u32 {
        let streams = &mut self.program.streams;
        *self.stream_positions.entry(stream).or_insert_with(|| {
            streams.push(stream);
            streams.len() as u32 - 1
        })
    }

    fn add(&mut self, size: u64, stream: u64, pool: PoolId, stack: StackId) -> u32 {
        let (stream, pool) = (self.stream_position(stream), self.pool_position(pool));
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.program.allocations.push(Allocation { size, stream, pool, slot, stack });
        self.program.allocations.len() as u32 - 1
    }

    /// The slot of an allocation is free for another.
    fn vacate(&mut self, number: u32) {
        self.vacant.push(self.program.slot(number));
    }

    /// Joins a free and its completion into one step if they are adjacent: few frees wait for a stream.
    fn complete(&mut self, event: u32, number: u32) {
        self.vacate(number);
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
    use super::*;
    use crate::device::Device;
    use crate::pytorch::{Pytorch, Settings};
    use crate::replay::replay;
    use crate::testing::recording;

    #[test]
    fn a_refusal_keeps_the_pool_that_the_recorder_wrote() {
        let mut device = DeviceTrace::default();
        device.events.push_in_pool(Event::new(Action::OutOfMemory, 0, 3 << 20), PoolId(0, 4));
        let program = Program::new(&device, &Stacks::default(), &Start::new(&device));
        assert_eq!(program.request(0).pool, PoolId(0, 4));
        assert_eq!(program.steps, [Step::AllocateRefused(0)]);
    }

    #[test]
    fn slots_are_used_again_once_an_allocation_is_freed() {
        let device = recording(&[
            (Action::Alloc, 0, 1),
            (Action::Alloc, 1, 1),
            (Action::FreeRequested, 0, 1),
            // Still pending: its slot is in use.
            (Action::Alloc, 2, 1),
            (Action::FreeCompleted, 0, 1),
            (Action::OutOfMemory, 0, 9),
            (Action::Alloc, 3, 1),
            // The free of this address was lost.
            (Action::Alloc, 1, 1),
        ]);
        let start = Start::new(&device);
        let program = Program::new(&device, &Stacks::default(), &start);
        let slots: Vec<u32> = (0..6).map(|number| program.slot(number)).collect();
        assert_eq!(slots, [0, 1, 2, 0, 0, 1]);
        let same = Program::from_last(device, &Stacks::default(), &start);
        assert_eq!(
            (same.allocations, same.steps, same.events),
            (program.allocations, program.steps, program.events)
        );
    }

    /// A lost completion must not free the next allocation in the slot when the allocator synchronizes the device.
    #[test]
    fn a_free_that_is_pending_forever_does_not_free_another_allocation() {
        let device = recording(&[
            (Action::Alloc, 0, 20),
            (Action::FreeRequested, 0, 20),
            (Action::Alloc, 0, 20),
            (Action::Alloc, 100, 20),
        ]);
        let program = Program::new(&device, &Stacks::default(), &Start::new(&device));
        let mut model = Pytorch::new(Settings::default(), Some(20 << 20));
        let outcome = replay(&program, &mut model, &mut Device::new(None));
        assert_eq!(outcome.refusal.map(|refusal| refusal.allocation), Some(2));
    }
}
