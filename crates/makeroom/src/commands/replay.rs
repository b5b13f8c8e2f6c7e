//! `makeroom replay`: run a recording under other allocators.

use makeroom_core::{Bytes, Trace, TraceKind};
use makeroom_report::{ReplayReport, replay_json, replay_text};
use makeroom_sim::{AllocatorSpec, Settings, Workload, check};

use crate::cli::Replay;
use crate::commands::recording;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// What is compared when no allocator is named.
const USUAL: [&str; 4] = ["pytorch:expandable_segments:True", "cuda-async", "planned", "ideal"];

/// Runs `makeroom replay`.
pub(crate) fn run(arguments: &Replay) -> Result<(), Failure> {
    let options = &arguments.recording;
    let trace = recording::read_trace(&options.input)?;
    let device = recording::device(&trace, &options.input, options.device)?;
    let room = recording::room(options.memory, options.card);
    let memory = recording::simulated(room);
    let specs = allocators(arguments, &trace);
    let progress = Progress::new(specs.len() as u64 + u64::from(arguments.check));
    let checked = arguments.check.then(|| {
        progress.step("checking the model");
        check(device, &trace.stacks, Settings::recorded(&trace.settings), memory.bytes)
    });
    let workload = Workload::new(device, &trace.stacks);
    let runs = specs
        .iter()
        .map(|spec| {
            progress.step(spec.name());
            workload.run(spec, memory, !arguments.no_smallest)
        })
        .collect();
    progress.finish();
    let mismatched = checked.as_ref().map_or(0, |checked| checked.mismatched);
    let report = ReplayReport {
        events: workload.events,
        allocations: workload.program.allocations.len(),
        peak_live: Bytes::new(workload.peak_live),
        memory: room.limit(),
        check: checked,
        runs,
        notes: notes(&trace, &workload),
    };
    if options.json {
        output::json(&replay_json(&report))?;
    } else {
        output::result(&replay_text(&report, output::columns()))?;
    }
    if mismatched > 0 { Err(Failure::Mismatched { count: mismatched }) } else { Ok(()) }
}

/// The allocators named, or the recorded one beside the usual ones. A check alone runs only the recorded one.
fn allocators(arguments: &Replay, trace: &Trace) -> Vec<AllocatorSpec> {
    if !arguments.allocators.is_empty() {
        return arguments.allocators.clone();
    }
    let mut specs = Vec::new();
    if trace.kind == TraceKind::TorchSnapshot {
        let settings = trace.settings.text.as_deref().filter(|text| !text.is_empty());
        let name = settings.map_or("pytorch".to_owned(), |settings| format!("pytorch:{settings}"));
        specs.push(AllocatorSpec::pytorch(&name, Settings::recorded(&trace.settings)));
    }
    if !arguments.check {
        specs.extend(USUAL.iter().filter_map(|name| makeroom_sim::parse(name).ok()));
    }
    specs
}

/// What the reader should know about how exact the runs are.
pub(crate) fn notes(trace: &Trace, workload: &Workload) -> Vec<String> {
    let mut notes = trace.notes.clone();
    let older = workload.program.older;
    if older > 0 {
        notes.push(format!(
            "{older} allocations are older than the recording: they are made first, in the order of their addresses, which is an assumption"
        ));
    }
    if workload.program.lost > 0 {
        notes.push(format!(
            "{} events name memory that the recording knows nothing of and were left out",
            workload.program.lost
        ));
    }
    notes
}
