//! One recording under many allocators.

use makeroom_core::{Bytes, CallCount, DeviceTrace, Stacks, Start, Trace};

use crate::allocators::{AllocatorSpec, recorded_allocator, usual_allocators};
use crate::check::{Check, check};
use crate::device::Device;
use crate::program::Program;
use crate::pytorch::{Pytorch, Settings};
use crate::replay::{Outcome, replay_from_start};
use crate::smallest::smallest_memory;

/// How much memory the runs have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What the allocator may take; `None` never refuses.
    pub bytes: Option<u64>,
}

/// What to run a recording under.
#[derive(Clone, Debug, Default)]
pub struct Comparing {
    /// The allocators; where none is named, the recorded one and the usual others.
    pub allocators: Vec<AllocatorSpec>,
    /// How much memory they have.
    pub memory: Memory,
    /// Whether the model of the recorded allocator is proven on the recording. Alone, it is the only one that runs.
    pub checks: bool,
    /// Whether the least memory is searched in which each run completes.
    pub finds_smallest: bool,
}

/// A recording under several allocators.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// How many events the recording has.
    pub events: usize,
    /// How many allocations the program made and got.
    pub allocations: usize,
    /// The most that was live at once.
    pub peak_live: Bytes,
    /// How long the recorded run took; 0 where the recording has no clock.
    pub recorded_us: u64,
    /// How often each kind of call was recorded; empty where a recording holds only allocations.
    pub calls: Vec<CallCount>,
    /// The check of the model against the recording, if one was asked for.
    pub check: Option<Check>,
    /// One run per allocator.
    pub runs: Vec<ComparedRun>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

impl Comparing {
    fn recorded(&self, trace: &Trace) -> Option<AllocatorSpec> {
        if self.allocators.is_empty() { recorded_allocator(trace) } else { None }
    }

    fn others(&self, trace: &Trace) -> Vec<AllocatorSpec> {
        if self.allocators.is_empty() && !self.checks {
            usual_allocators(trace)
        } else {
            self.allocators.clone()
        }
    }

    /// How many steps there are to tell of.
    pub fn steps(&self, trace: &Trace) -> usize {
        usize::from(self.checks) + self.recorded(trace).iter().len() + self.others(trace).len()
    }

    /// Runs a device of a recording under all of them; `tell` hears what is done next.
    pub fn run(&self, trace: &Trace, device: &DeviceTrace, mut tell: impl FnMut(&str)) -> Comparison {
        let check = self.checks.then(|| {
            tell("checking the model");
            check(device, &trace.stacks, Settings::recorded(&trace.settings), self.memory.bytes)
        });
        let workload = Workload::new(device, &trace.stacks);
        let mut runs = Vec::new();
        if let Some(spec) = self.recorded(trace) {
            tell(spec.name());
            runs.push(workload.run_recorded(&spec, self.memory, self.finds_smallest));
        }
        for spec in self.others(trace) {
            tell(spec.name());
            runs.push(workload.run(&spec, self.memory, self.finds_smallest));
        }
        Comparison {
            events: workload.events,
            allocations: workload.program.granted(),
            peak_live: Bytes::new(workload.peak_live),
            recorded_us: workload.program.recorded_us,
            calls: trace.process.as_ref().map(|process| process.calls.clone()).unwrap_or_default(),
            check,
            runs,
            notes: workload.notes(trace),
        }
    }
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
        (self.outcome.peak_live > 0)
            .then(|| self.outcome.peak_reserved as f64 / self.outcome.peak_live as f64)
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
    start: Start,
}

impl Workload {
    /// Reads the workload of a device out of its recording.
    pub fn new(device: &DeviceTrace, stacks: &Stacks) -> Self {
        let start = Start::new(device);
        let program = Program::new(device, stacks, &start);
        let peak_live = program.peak_live();
        Self { program, events: device.events.len(), peak_live, start }
    }

    /// What the reader should know about runs, after what the recording itself has to say.
    pub fn notes(&self, trace: &Trace) -> Vec<String> {
        let mut notes = trace.notes.clone();
        let older = self.program.older;
        if older > 0 {
            notes.push(format!(
                "{older} allocations are older than the recording; under other settings they are replayed first, in the order of their addresses, which is an assumption"
            ));
        }
        if self.program.lost > 0 {
            notes.push(format!(
                "{} events refer to memory that is not in the recording and were skipped",
                self.program.lost
            ));
        }
        let peak = self.program.peak_live_if_granted();
        if peak > self.peak_live {
            let peak = Bytes::new(peak);
            notes.push(match self.program.refused() {
                1 => format!(
                    "1 request failed in the recorded run; where it fits, it is freed immediately, which raises the live peak to {peak}"
                ),
                refused => format!(
                    "{refused} requests failed in the recorded run; where they fit, they are freed immediately, which raises the live peak to {peak}"
                ),
            });
        }
        notes
    }

    /// Runs it under the settings it was recorded with, from the state in which the recording began: what is older
    /// than the recording lies where it lay.
    pub fn run_recorded(&self, spec: &AllocatorSpec, memory: Memory, finds_smallest: bool) -> ComparedRun {
        let Some(settings) = spec.settings() else { return self.run(spec, memory, finds_smallest) };
        let limit = memory.bytes.map(|bytes| settings.limit_of(bytes));
        let (mut model, _) = Pytorch::at_start(settings.clone(), limit, &self.start);
        let outcome = replay_from_start(&self.program, &mut model, &mut Device::new(None));
        ComparedRun { outcome, ..self.run_named(spec, finds_smallest) }
    }

    /// Runs it under one allocator, and searches for the least memory where that is wanted.
    pub fn run(&self, spec: &AllocatorSpec, memory: Memory, finds_smallest: bool) -> ComparedRun {
        ComparedRun { outcome: spec.run(&self.program, memory.bytes), ..self.run_named(spec, finds_smallest) }
    }

    /// All of a run but its outcome.
    fn run_named(&self, spec: &AllocatorSpec, finds_smallest: bool) -> ComparedRun {
        ComparedRun {
            allocator: spec.name().to_owned(),
            is_estimate: spec.is_estimate(),
            outcome: Outcome::default(),
            smallest_memory: finds_smallest.then(|| smallest_memory(&self.program, spec)).flatten(),
        }
    }
}
