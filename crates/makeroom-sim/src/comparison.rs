//! One recording under many allocators.

use makeroom_core::{DeviceTrace, Stacks, Start};

use crate::allocators::AllocatorSpec;
use crate::program::Program;
use crate::replay::Outcome;
use crate::smallest::smallest_memory;

/// How much memory the runs have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What the allocator may take; `None` never refuses.
    pub bytes: Option<u64>,
}

/// The run under one allocator.
#[derive(Clone, Debug)]
pub struct ComparedRun {
    /// The allocator, as it was typed.
    pub allocator: String,
    /// The model is a guess at an allocator whose rules are not known.
    pub is_estimate: bool,
    /// What came of it.
    pub outcome: Outcome,
    /// The least memory in which it completes, where it was searched for.
    pub smallest_memory: Option<u64>,
}

impl ComparedRun {
    /// Peak reserved over peak live: 1 wastes nothing. `None` when nothing was live.
    pub fn reserved_over_live(&self) -> Option<f64> {
        (self.outcome.peak_live > 0).then(|| self.outcome.peak_reserved as f64 / self.outcome.peak_live as f64)
    }
}

/// What a recording asks for, ready to be run.
#[derive(Debug)]
pub struct Workload {
    /// The program.
    pub program: Program,
    /// How many events the recording has.
    pub events: usize,
    /// The most that was live at once.
    pub peak_live: u64,
}

impl Workload {
    /// Reads the workload of a device out of its recording.
    pub fn new(device: &DeviceTrace, stacks: &Stacks) -> Self {
        let program = Program::new(device, stacks, &Start::new(device));
        let peak_live = program.peak_live();
        Self { program, events: device.events.len(), peak_live }
    }

    /// Runs it under one allocator, and searches for the least memory where that is wanted.
    pub fn run(&self, spec: &AllocatorSpec, memory: Memory, finds_smallest: bool) -> ComparedRun {
        ComparedRun {
            allocator: spec.name().to_owned(),
            is_estimate: spec.is_estimate(),
            outcome: spec.run(&self.program, memory.bytes),
            smallest_memory: finds_smallest.then(|| smallest_memory(&self.program, spec)).flatten(),
        }
    }
}
