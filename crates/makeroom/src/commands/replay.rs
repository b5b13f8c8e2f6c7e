//! `makeroom replay`: run a recording under other allocators.

use makeroom_core::{Bytes, Trace};
use makeroom_report::{ReplayReport, replay_json, replay_text};
use makeroom_sim::{AllocatorSpec, Settings, Workload, check, recorded_allocator, usual_allocators};

use crate::cli::Replay;
use crate::commands::recording;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// Runs `makeroom replay`.
pub(crate) fn run(arguments: &Replay) -> Result<(), Failure> {
    let options = &arguments.recording;
    let trace = recording::read_trace(&options.input)?;
    let device = recording::device(&trace, &options.input, options.device)?;
    let room = recording::room(options.memory, options.card);
    let memory = recording::simulated(room);
    let recorded = recorded(arguments, &trace);
    let others = others(arguments);
    let progress = Progress::new((recorded.iter().len() + others.len()) as u64 + u64::from(arguments.check));
    let checked = arguments.check.then(|| {
        progress.step("checking the model");
        check(device, &trace.stacks, Settings::recorded(&trace.settings), memory.bytes)
    });
    let workload = Workload::new(device, &trace.stacks);
    let mut runs = Vec::new();
    if let Some(spec) = &recorded {
        progress.step(spec.name());
        runs.push(workload.run_recorded(spec, memory, !arguments.no_smallest));
    }
    for spec in &others {
        progress.step(spec.name());
        runs.push(workload.run(spec, memory, !arguments.no_smallest));
    }
    progress.finish();
    let mismatched = checked.as_ref().map_or(0, |checked| checked.mismatched);
    let report = ReplayReport {
        events: workload.events,
        allocations: workload.program.allocations.len(),
        peak_live: Bytes::new(workload.peak_live),
        calls: trace.process.as_ref().map(|process| process.calls.clone()).unwrap_or_default(),
        recorded_us: workload.program.recorded_us,
        memory: room.limit(),
        check: checked,
        runs,
        notes: workload.notes(&trace),
    };
    if options.json {
        output::json(&replay_json(&report))?;
    } else {
        output::result(&replay_text(&report, output::columns()))?;
    }
    if mismatched > 0 { Err(Failure::Mismatched { count: mismatched }) } else { Ok(()) }
}

/// The recorded allocator, unless others were named.
fn recorded(arguments: &Replay, trace: &Trace) -> Option<AllocatorSpec> {
    if arguments.allocators.is_empty() { recorded_allocator(trace) } else { None }
}

/// The allocators named, or the usual ones. A check alone runs only the recorded one.
fn others(arguments: &Replay) -> Vec<AllocatorSpec> {
    if arguments.allocators.is_empty() && !arguments.check {
        return usual_allocators();
    }
    arguments.allocators.clone()
}
