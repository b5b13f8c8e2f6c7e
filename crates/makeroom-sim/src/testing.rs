//! Programs for tests, written by hand.

use makeroom_core::StackId;

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
        let allocation = Allocation { size, stream, pool: 0, address: 0, stack: StackId::NONE };
        self.program.allocations.push(allocation);
        let number = self.program.allocations.len() as u32 - 1;
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
