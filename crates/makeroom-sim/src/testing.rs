//! Programs and recordings for tests, written by hand.

use makeroom_core::{Action, DeviceTrace, Event, StackId};

use crate::program::{Allocation, Program, Step};

/// A program that grows call by call.
#[derive(Default)]
pub(crate) struct Script {
    program: Program,
}

impl Script {
    /// Allocates memory on the default stream.
    pub(crate) fn allocate(&mut self, size: u64) -> u32 {
        self.allocate_on(size, 0)
    }

    pub(crate) fn allocate_on(&mut self, size: u64, stream: u64) -> u32 {
        let streams = &mut self.program.streams;
        let position = streams.iter().position(|&known| known == stream).unwrap_or_else(|| {
            streams.push(stream);
            streams.len() - 1
        });
        let number = self.program.allocations.len() as u32;
        let (stream, slot) = (position as u32, number);
        self.program.allocations.push(Allocation { size, stream, pool: 0, slot, stack: StackId::NONE });
        self.step(Step::Allocate(number));
        number
    }

    pub(crate) fn free(&mut self, number: u32) {
        self.step(Step::Free(number));
    }

    pub(crate) fn step(&mut self, step: Step) {
        self.program.events.push(self.program.steps.len() as u32);
        self.program.steps.push(step);
    }

    pub(crate) fn program(self) -> Program {
        self.program
    }
}

/// A recording of these actions, each with an address and a size in MiB.
pub(crate) fn recording(events: &[(Action, u64, u64)]) -> DeviceTrace {
    let mut device = DeviceTrace::default();
    for &(action, address, size) in events {
        device.events.push(Event::new(action, (1 << 40) + (address << 20), size << 20));
    }
    device
}
