//! What a program did, freed from where its memory lay: allocations by number, in order.
//!
//! A recording names blocks by address. Addresses are the old allocator's answer, not the program's question, so
//! they are replaced by numbers once, and every run under another allocator is then a walk over two arrays.

use std::collections::HashSet;

use makeroom_core::{Action, DeviceTrace, FastHasher, FastMap, PoolId, StackId, Stacks, Start};

use crate::homes::{Homes, PoolFinder};

/// An allocation of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// How many bytes it asked for.
    pub size: u64,
    /// On which stream.
    pub stream: u64,
    /// For which memory pool.
    pub pool: PoolId,
    /// Where the recorded allocator put it.
    pub address: u64,
    /// Who asked.
    pub stack: StackId,
}

/// One thing the program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Asked for memory, and got it when it was recorded.
    Allocate(u32),
    /// Asked for memory, and was refused when it was recorded.
    AllocateRefused(u32),
    /// Gave memory back that may be used again at once.
    Free(u32),
    /// Gave memory back; it waits for a stream.
    FreeRequested(u32),
    /// Memory that waited for a stream may be used again.
    FreeCompleted(u32),
    /// Asked the allocator to give unused memory back to the driver.
    EmptyCache,
}

/// A program on one device.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// All allocations, those that were refused among them; their number is their place here. Those that are older than
    /// the recording come first.
    pub allocations: Vec<Allocation>,
    /// How many allocations are older than the recording.
    pub older: u32,
    /// What it did, in order.
    pub steps: Vec<Step>,
    /// The event of the recording behind each step.
    pub events: Vec<u32>,
    /// Events that name an address nothing was known of, and were left out.
    pub lost: usize,
    /// How long the recorded run took from its first event to its last, in microseconds; 0 where it has no clock.
    pub recorded_us: u64,
    /// The first step in the second half of that time.
    pub half: usize,
}

impl Program {
    /// Reads the program out of a recording.
    pub fn new(device: &DeviceTrace, stacks: &Stacks, start: &Start) -> Self {
        Self::with_homes(device, stacks, start, &Homes::new(device))
    }

    /// The same, where the segments and their pools are known already.
    pub(crate) fn with_homes(device: &DeviceTrace, stacks: &Stacks, start: &Start, homes: &Homes) -> Self {
        let reader = Reader {
            device,
            stacks,
            program: Self::default(),
            at: FastMap::default(),
            pools: PoolFinder::new(homes),
        };
        reader.read(start)
    }

    /// The most bytes that were live at once, and what was live at the start.
    pub fn peak_live(&self) -> u64 {
        self.live().fold(self.live_at_start(), u64::max)
    }

    /// The same, where requests that were refused are granted and given back at once, as a replay does.
    pub fn peak_live_if_granted(&self) -> u64 {
        let asked = self.steps.iter().zip(self.live()).map(|(step, live)| match *step {
            Step::AllocateRefused(number) => live.saturating_add(self.size(number)),
            _ => live,
        });
        asked.fold(self.live_at_start(), u64::max)
    }

    /// How many requests were refused when they were recorded.
    pub fn refused(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::AllocateRefused(_))).count()
    }

    /// How many allocations there were, those older than the recording among them.
    pub fn granted(&self) -> usize {
        self.allocations.len() - self.refused()
    }

    /// The bytes that are older than the recording.
    pub fn live_at_start(&self) -> u64 {
        let older = &self.allocations[..self.older as usize];
        older.iter().fold(0, |live, older| live.saturating_add(older.size))
    }

    /// The bytes that were live after each step.
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

    /// The size of an allocation.
    pub fn size(&self, number: u32) -> u64 {
        self.allocations[number as usize].size
    }
}

struct Reader<'trace> {
    device: &'trace DeviceTrace,
    stacks: &'trace Stacks,
    program: Program,
    /// The allocation that lives at an address.
    at: FastMap<u64, u32>,
    pools: PoolFinder<'trace>,
}

impl Reader<'_> {
    fn read(mut self, start: &Start) -> Program {
        self.read_older(start);
        let empties: HashSet<u32, FastHasher> =
            empty_cache_calls(self.device, self.stacks).into_iter().collect();
        for (index, event) in self.device.events.iter().enumerate() {
            let event_index = index as u32;
            match event.action {
                Action::Alloc => {
                    let pool =
                        self.device.events.pool(index).unwrap_or_else(|| self.pools.pool_of(event.address.0));
                    let number = self.add(Allocation {
                        size: event.size.get(),
                        stream: event.stream.0,
                        pool,
                        address: event.address.0,
                        stack: event.stack,
                    });
                    // A block that is handed out again without a free: its free was lost.
                    if let Some(lost) = self.at.insert(event.address.0, number) {
                        self.program.lost += 1;
                        self.push(event_index, Step::Free(lost));
                    }
                    self.push(event_index, Step::Allocate(number));
                }
                Action::OutOfMemory => {
                    let number = self.add(Allocation {
                        size: event.size.get(),
                        stream: event.stream.0,
                        pool: self.device.events.pool(index).unwrap_or(PoolId::DEFAULT),
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

    /// How long it took, and where its second half begins.
    fn read_times(&mut self) {
        let times = || self.device.events.iter().map(|event| event.time_us).filter(|&time| time > 0);
        let (first, last) = (times().next().unwrap_or(0), times().next_back().unwrap_or(0));
        self.program.recorded_us = last.saturating_sub(first);
        let middle = first + self.program.recorded_us / 2;
        let time_of = |&event: &u32| self.device.events.get(event as usize).map_or(0, |event| event.time_us);
        self.program.half = self.program.events.partition_point(|event| time_of(event) < middle);
    }

    /// What was live before the first event.
    fn read_older(&mut self, start: &Start) {
        self.program.older = start.blocks.len() as u32;
        for block in &start.blocks {
            let number = self.add(Allocation {
                size: block.requested.get(),
                stream: block.stream.0,
                pool: self.pools.pool_of(block.address.0),
                address: block.address.0,
                stack: block.stack,
            });
            self.at.insert(block.address.0, number);
        }
    }

    fn add(&mut self, allocation: Allocation) -> u32 {
        self.program.allocations.push(allocation);
        self.program.allocations.len() as u32 - 1
    }

    /// A free that completes right after its request is one step: hardly any waits for a stream.
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

/// The first events of runs of releases that the program itself asked for.
///
/// A run that is followed by the allocator's own next step (new memory, or a refusal) can also be the allocator's:
/// it gives memory back when the driver refuses. With Python stacks the call names itself. Without, a run counts as
/// the program's unless reserved memory was about to exceed its highest mark, which only a refusal explains.
pub(crate) fn empty_cache_calls(device: &DeviceTrace, stacks: &Stacks) -> Vec<u32> {
    let events = &device.events;
    let mut calls = Vec::new();
    let mut reserved = 0_i128;
    let mut peak = 0_i128;
    for event in events.iter() {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => reserved += i128::from(event.size.get()),
            Action::SegmentFree | Action::SegmentUnmap => reserved -= i128::from(event.size.get()),
            _ => {}
        }
        peak = peak.max(reserved);
    }
    let is_release = |action| matches!(action, Action::SegmentFree | Action::SegmentUnmap);
    reserved = 0;
    let mut index = 0;
    while let Some(event) = events.get(index) {
        if !is_release(event.action) {
            if matches!(event.action, Action::SegmentAlloc | Action::SegmentMap) {
                reserved += i128::from(event.size.get());
            }
            index += 1;
            continue;
        }
        let start = index;
        let before = reserved;
        // The allocator waits for the device in the middle of a release; what that completes stands in between.
        while let Some(released) = events
            .get(index)
            .filter(|event| is_release(event.action) || event.action == Action::FreeCompleted)
        {
            if is_release(released.action) {
                reserved -= i128::from(released.size.get());
            }
            index += 1;
        }
        let next = events.get(index);
        let is_named = names_empty_cache(stacks, event.stack);
        let is_allocators = match next.map(|next| next.action) {
            Some(Action::OutOfMemory) => true,
            Some(Action::SegmentAlloc | Action::SegmentMap) => {
                next.is_some_and(|next| before + i128::from(next.size.get()) > peak)
            }
            _ => false,
        };
        if is_named || (!is_allocators && stacks.frames_of(event.stack).is_empty()) || !follows(next) {
            calls.push(start as u32);
        }
    }
    calls
}

/// Whether the allocator itself may have gone on from a release to this event.
fn follows(next: Option<makeroom_core::Event>) -> bool {
    next.is_some_and(|next| {
        matches!(next.action, Action::OutOfMemory | Action::SegmentAlloc | Action::SegmentMap)
    })
}

fn names_empty_cache(stacks: &Stacks, stack: StackId) -> bool {
    stacks
        .frames_of(stack)
        .iter()
        .any(|&frame| stacks.name_text(stacks.frame_at(frame).function).contains("empty_cache"))
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
        assert_eq!(program.allocations[0].pool, PoolId(0, 4));
        assert_eq!(program.steps, [Step::AllocateRefused(0)]);
    }
}
