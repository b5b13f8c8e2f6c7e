//! Runs one recording under several allocators.

use makeroom_core::{Bytes, CallCount, DeviceIndex, DeviceTrace, Stacks, Start, Trace};

use crate::allocators::{AllocatorSpec, recorded_allocator, usual_allocators};
use crate::check::{Check, check};
use crate::device::Device;
use crate::program::Program;
use crate::pytorch::{Pytorch, Settings};
use crate::replay::{Outcome, replay_from_start};
use crate::smallest::smallest_memory;

/// Maximum number of allocations to plan by default: the planner needs about 350 bytes for each.
const MOST_PLANNED: usize = 250_000;

/// The memory available to the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Memory available to the allocator; with `None`, no allocation fails.
    pub bytes: Option<u64>,
}

/// The allocators and checks to run a recording with.
#[derive(Clone, Debug, Default)]
pub struct Comparing {
    /// The allocators; if empty, the recorded one and the defaults.
    pub allocators: Vec<AllocatorSpec>,
    /// The memory available to them.
    pub memory: Memory,
    /// Whether to check the model of the recorded allocator against the recording. If only this is requested, no other
    /// model runs.
    pub checks: bool,
    /// Whether to find the least memory in which each run completes.
    pub finds_smallest: bool,
}

/// A recording replayed under several allocators.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Number of events in the recording.
    pub events: usize,
    /// Number of the program's successful allocations.
    pub allocations: usize,
    /// Peak live memory.
    pub peak_live: Bytes,
    /// Duration of the recorded run; 0 if the recording has no clock.
    pub recorded_us: u64,
    /// Number of recorded calls by kind; empty if the recording contains only allocations.
    pub calls: Vec<CallCount>,
    /// The check of the model against the recording, if requested.
    pub check: Option<Check>,
    /// One run per allocator.
    pub runs: Vec<ComparedRun>,
    /// Notes for the user.
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

    /// The number of progress steps.
    pub fn steps(&self, trace: &Trace) -> usize {
        usize::from(self.checks) + self.recorded(trace).iter().len() + self.others(trace).len()
    }

    /// Replays a device of a recording under all allocators. Calls `tell` with the name of each step before it starts.
    pub fn run(&self, trace: &Trace, device: &DeviceTrace, mut tell: impl FnMut(&str)) -> Comparison {
        let check = self.check(trace, device, &mut tell);
        let workload = Workload::new(device, &trace.stacks);
        self.compare(trace, &workload, check, tell)
    }

    /// The same for a recording that is no longer needed: its events are freed before the models run. `None` if it does
    /// not contain the device.
    pub fn run_last(
        &self,
        mut trace: Trace,
        device: DeviceIndex,
        mut tell: impl FnMut(&str),
    ) -> Option<Comparison> {
        let position = trace.devices.iter().position(|found| found.device == device)?;
        let check = self.check(&trace, &trace.devices[position], &mut tell);
        let found = std::mem::take(&mut trace.devices).swap_remove(position);
        let workload = Workload::from_last(found, &trace.stacks);
        trace.stacks = Stacks::default();
        Some(self.compare(&trace, &workload, check, tell))
    }

    fn check(&self, trace: &Trace, device: &DeviceTrace, tell: &mut impl FnMut(&str)) -> Option<Check> {
        self.checks.then(|| {
            tell("checking the model");
            check(device, &trace.stacks, Settings::recorded(&trace.settings), self.memory.bytes)
        })
    }

    fn compare(
        &self,
        trace: &Trace,
        workload: &Workload,
        check: Option<Check>,
        mut tell: impl FnMut(&str),
    ) -> Comparison {
        let mut runs = Vec::new();
        if let Some(spec) = self.recorded(trace) {
            tell(spec.name());
            runs.push(workload.run_recorded(&spec, self.memory, self.finds_smallest));
        }
        let mut notes = workload.notes(trace);
        for spec in self.others(trace) {
            tell(spec.name());
            if self.allocators.is_empty() && spec.plans() && workload.program.allocations.len() > MOST_PLANNED
            {
                notes.push(format!(
                    "`{0}` is left out: it needs a lot of memory for more than {MOST_PLANNED} allocations; `--allocator {0}` includes it",
                    spec.name()
                ));
                continue;
            }
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
            notes,
        }
    }
}

/// The run under one allocator.
#[derive(Clone, Debug)]
pub struct ComparedRun {
    /// The allocator, as typed.
    pub allocator: String,
    /// The model is an estimate of an allocator whose rules are not known.
    pub is_estimate: bool,
    /// The result.
    pub outcome: Outcome,
    /// The least memory in which it completes, if requested.
    pub smallest_memory: Option<u64>,
}

impl ComparedRun {
    /// Peak reserved divided by peak live: 1 means no waste. `None` if nothing was live.
    pub fn reserved_over_live(&self) -> Option<f64> {
        (self.outcome.peak_live > 0)
            .then(|| self.outcome.peak_reserved as f64 / self.outcome.peak_live as f64)
    }
}

/// The allocations of a recording, ready to replay.
#[derive(Debug)]
pub struct Workload {
    /// The program.
    pub program: Program,
    /// Number of events in the recording.
    pub events: usize,
    /// Peak live memory.
    pub peak_live: u64,
    start: Start,
}

impl Workload {
    /// Extracts the workload of a device from its recording.
    pub fn new(device: &DeviceTrace, stacks: &Stacks) -> Self {
        let start = Start::new(device);
        let program = Program::new(device, stacks, &start);
        Self::with_start(program, device.events.len(), start)
    }

    /// The same for a recording that is not needed any more: its events make room for the program.
    pub fn from_last(device: DeviceTrace, stacks: &Stacks) -> Self {
        let (start, events) = (Start::new(&device), device.events.len());
        let program = Program::from_last(device, stacks, &start);
        Self::with_start(program, events, start)
    }

    fn with_start(program: Program, events: usize, start: Start) -> Self {
        Self { peak_live: program.peak_live(), program, events, start }
    }

    /// Notes about runs for the user, after the recording's own notes.
    pub fn notes(&self, trace: &Trace) -> Vec<String> {
        let mut notes = trace.notes.clone();
        let older = self.program.older;
        if older > 0 {
            notes.push(format!(
                "{older} allocations were made before the recording started; under other settings, they are replayed first, in address order, which may differ from the real order"
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
                    "1 request failed in the recorded run; if it fits here, it is freed immediately, which raises the live peak to {peak}"
                ),
                refused => format!(
                    "{refused} requests failed in the recorded run; those that fit here are freed immediately, which raises the live peak to {peak}"
                ),
            });
        }
        notes
    }

    /// Runs it under the settings it was recorded with, from the state in which the recording began: older memory keeps
    /// its addresses.
    pub fn run_recorded(&self, spec: &AllocatorSpec, memory: Memory, finds_smallest: bool) -> ComparedRun {
        let Some(settings) = spec.settings() else { return self.run(spec, memory, finds_smallest) };
        let limit = memory.bytes.map(|bytes| settings.limit_of(bytes));
        let (mut model, _) = Pytorch::at_start(settings.clone(), limit, &self.start);
        let outcome = replay_from_start(&self.program, &mut model, &mut Device::new(None));
        ComparedRun { outcome, ..self.run_named(spec, finds_smallest) }
    }

    /// Runs it under one allocator, and finds the least memory if requested.
    pub fn run(&self, spec: &AllocatorSpec, memory: Memory, finds_smallest: bool) -> ComparedRun {
        ComparedRun { outcome: spec.run(&self.program, memory.bytes), ..self.run_named(spec, finds_smallest) }
    }

    /// All parts of a run except its outcome.
    fn run_named(&self, spec: &AllocatorSpec, finds_smallest: bool) -> ComparedRun {
        ComparedRun {
            allocator: spec.name().to_owned(),
            is_estimate: spec.is_estimate(),
            outcome: Outcome::default(),
            smallest_memory: finds_smallest.then(|| smallest_memory(&self.program, spec)).flatten(),
        }
    }
}
