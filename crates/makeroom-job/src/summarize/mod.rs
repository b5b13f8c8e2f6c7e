//! Reduces one recording to rows.
//!
//! ```text
//! mod.rs      a trace: its process, devices, failures and live memory by line
//! series.rs   memory over time and over steps, in a bounded number of points;  waste.rs  cached and fragmented memory
//! model.rs    the model that a command line names
//! log.rs      a program's output: its lines by rank
//! log_text.rs what a log contains about one rank
//! reports.rs  lines in which launchers, Ray and Kubernetes report other processes
//! owners.rs   which rank the lines of a process belong to
//! log_row.rs  the rows of a process in a log
//! errors.rs   the error that ended a process;  exceptions.rs  names of Python's exceptions
//! crashes.rs  ends without a traceback;  stops.rs  jobs that a scheduler ended
//! phrases.rs  the messages that tell a failure from its consequences;  collectives.rs  those that timed out
//! ```
//!
//! The time is linear in the number of events. Only a recording with a failed allocation is explained, because an
//! explanation replays the recording under other settings.

mod collectives;
mod crashes;
mod errors;
mod exceptions;
mod log;
mod log_row;
mod log_text;
mod model;
mod owners;
mod phrases;
mod reports;
mod series;
mod stops;
mod waste;

use makeroom_core::identity::JobIdentity;
use makeroom_core::{
    Action, Bytes, DeviceIndex, DeviceTrace, ProcessEnd, ProcessRecord, SortCompact as _, Start, Trace,
    TraceKind,
};
use makeroom_explain::{Explanation, Fix, TraceQuestion, explain_trace, line_of, live_lines};

use crate::tables::{DeviceRow, End, FailureKind, FailureRow, RecordingKind, RecordingRow, Rows, SiteRow};
pub(crate) use crashes::signal_words;
pub use log::LogReader;
use series::OverTime;

/// Lines of code per device.
const MOST_SITES: usize = 64;
/// Failures per recording, the last ones.
const MOST_FAILURES: usize = 64;
/// Fixes taken over from an explanation.
const MOST_FIXES: usize = 3;

/// Where a recording comes from.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Its file; unique among the recordings of an answer.
    pub name: String,
    /// What the file's name says about its process.
    pub identity: JobIdentity,
    /// Whether the process is still running.
    pub is_running: bool,
}

/// Reduces a recording to rows.
pub fn summarize(trace: &Trace, source: &Source) -> Rows {
    let mut recording = row(trace, source);
    let mut rows = Rows::default();
    let mut decisive = None;
    let ended_us = recording.ended_us;
    for device in &trace.devices {
        let start = Start::new(device);
        let over_time = OverTime::new(trace, device, &start, recording.began_us);
        let found = failures(trace, device, &recording.recording, &over_time);
        let last_streak = found.iter().rev().take_while(|(_, failure)| !failure.is_caught()).last();
        decisive = decisive.or(last_streak.map(|_| device.device));
        let lines = live_lines(trace, device, &start, last_streak.map(|(index, _)| *index), MOST_SITES);
        rows.sites.extend(lines.into_iter().map(|line| SiteRow {
            recording: recording.recording.clone(),
            device: device.device.0,
            place: line.place,
            bytes: line.bytes.get(),
            blocks: line.blocks,
        }));
        let row = device_row(&mut recording.devices, device.device);
        row.is_used = !device.events.is_empty() || !device.segments.is_empty();
        row.peak_bytes = over_time.peak_bytes;
        row.last_bytes = over_time.last_bytes;
        row.overhead_bytes = over_time.context_bytes;
        let waste = over_time.waste(ended_us);
        row.held_byte_seconds = waste.held;
        row.cached_byte_seconds = waste.cached;
        row.fragmented_byte_seconds = waste.fragmented;
        rows.failures.extend(found.into_iter().map(|(_, failure)| failure));
        let (series, steps) = over_time.rows(&recording.recording, device.device.0);
        rows.series.push(series);
        rows.steps.extend(steps);
    }
    if let Some(process) = &trace.process {
        rows.failures.extend(other_failures(trace, process, &recording.recording));
    }
    if !rows.failures.is_empty() {
        explain(trace, decisive, &mut recording);
    }
    recording.devices.sort_compact_by_key(|device| device.device);
    rows.recordings.push(recording);
    rows
}

/// The row of the process, without its devices' figures.
fn row(trace: &Trace, source: &Source) -> RecordingRow {
    let process = trace.process.as_ref();
    // A recording that knows its rank knows its job too; its file's name may contain a PID or a date. Only launchers
    // that restart ranks themselves tell them the attempt; scripts that do so use a directory for each.
    let identity = match process.map(|process| &process.identity.job) {
        Some(recorded) if !recorded.is_alone() => {
            let attempt = recorded.attempt.or(source.identity.attempt);
            JobIdentity { attempt, ..recorded.clone() }
        }
        Some(recorded) => {
            // Without a rank, the recorder puts the PID where the pattern of the file has it.
            let mut named = source.identity.clone();
            named.rank = named.rank.filter(|&rank| process.map(|process| process.identity.pid) != Some(rank));
            recorded.clone().or(&named)
        }
        None => source.identity.clone(),
    };
    let first_us =
        trace.devices.iter().filter_map(|device| device.events.get(0)).map(|event| event.time_us).min();
    let last_us = trace.devices.iter().filter_map(|device| device.events.iter().next_back());
    let last_us = last_us.map(|event| event.time_us).max();
    let known = |time: Option<u64>| time.filter(|&time| time > 0);
    let began_us = known(process.map(|process| process.identity.began_us)).or(known(first_us));
    let ended_us = process.map_or(known(last_us), |process| {
        Some(process.identity.began_us.saturating_add(process.recorded_us))
    });
    let host = process.map(|process| process.identity.host.clone()).filter(|host| !host.is_empty());
    let samples = process.map_or(&[][..], |process| process.host_samples.as_slice());
    let last = |figure: fn(&makeroom_core::HostSample) -> Option<Bytes>| {
        samples.iter().rev().find_map(figure).map(Bytes::get)
    };
    let replica = identity.part();
    RecordingRow {
        recording: source.name.clone(),
        process: None,
        kind: match trace.kind {
            TraceKind::Room => RecordingKind::Room,
            TraceKind::TorchSnapshot => RecordingKind::TorchSnapshot,
            TraceKind::RmmLog => RecordingKind::RmmLog,
            TraceKind::JaxProfile => RecordingKind::JaxProfile,
        },
        rank: identity.rank,
        local_rank: identity.local_rank,
        world_size: identity.world_size,
        host: identity.node.or(identity.host).or(host),
        pod: identity.pod,
        node_rank: identity.node_rank,
        job: identity.job_id,
        attempt: identity.attempt,
        replica,
        // Without `makeroom run`, the recorder has no ID for it.
        run: process
            .map(|process| u128::from_be_bytes(process.identity.run))
            .filter(|&run| run != 0)
            .map(|run| format!("{run:032x}")),
        pid: process.map(|process| process.identity.pid),
        parent_pid: process.map(|process| process.identity.parent_pid),
        program: process.map(program),
        model: process.and_then(|process| model::of(&process.identity.command_line)),
        framework: identity.framework,
        launcher: identity.launcher,
        began_us,
        ended_us,
        silence_us: process.map(|process| process.silence_us).filter(|&silence| silence > 0),
        end: process.map_or(End::Unknown, |process| end(process, source.is_running)),
        ended_line: None,
        torn_bytes: process.map_or(0, |process| process.unread.get()),
        events: trace.event_count() as u64,
        is_incomplete: process.is_some_and(|process| process.dropped > 0)
            || trace.devices.iter().any(|device| device.overflowed == Some(true)),
        devices: process.map_or_else(Vec::new, visible_devices),
        host_peak_bytes: samples.iter().filter_map(|sample| sample.resident).max().map(Bytes::get),
        cgroup_bytes: last(|sample| sample.cgroup_usage),
        cgroup_limit_bytes: last(|sample| sample.cgroup_limit),
        is_first_failure: false,
        error: None,
        cause: "none".to_owned(),
        certainty: "certain".to_owned(),
        summary: String::new(),
        fixes: Vec::new(),
    }
}

fn program(process: &ProcessRecord) -> String {
    let words = &process.identity.command_line;
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let executable = words.first().map_or(process.identity.executable.as_str(), String::as_str);
    let script = words.iter().skip(1).find(|word| !word.starts_with('-')).filter(|word| word.contains(".py"));
    script.map_or_else(|| name(executable), |script| name(script))
}

fn end(process: &ProcessRecord, is_running: bool) -> End {
    match process.end {
        Some(ProcessEnd::Exited(status)) => End::Exited(status),
        Some(ProcessEnd::Signalled(signal)) => End::Signaled(signal),
        Some(ProcessEnd::Replaced | ProcessEnd::Detached | ProcessEnd::Other) => End::Unknown,
        None if is_running => End::Running,
        // A file that ends in the middle of a record was cut: by a full disk, or when it was copied.
        None if !process.unread.is_zero() => End::Unknown,
        None => End::Killed,
    }
}

fn visible_devices(process: &ProcessRecord) -> Vec<DeviceRow> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let row = |known: &makeroom_core::DeviceIdentity| DeviceRow {
        device: known.device.0,
        uuid: text(&known.uuid),
        name: text(&known.name),
        total_bytes: (!known.total.is_zero()).then_some(known.total.get()),
        ..DeviceRow::default()
    };
    process.devices.iter().map(row).collect()
}

fn device_row(devices: &mut Vec<DeviceRow>, device: DeviceIndex) -> &mut DeviceRow {
    let position = devices.iter().position(|row| row.device == device.0).unwrap_or_else(|| {
        devices.push(DeviceRow { device: device.0, ..DeviceRow::default() });
        devices.len() - 1
    });
    &mut devices[position]
}

/// The failed allocations of a device with their event indices, at most [`MOST_FAILURES`], in order.
fn failures(
    trace: &Trace,
    device: &DeviceTrace,
    recording: &str,
    over_time: &OverTime,
) -> Vec<(usize, FailureRow)> {
    let actions = device.events.actions();
    let limit = trace.process.as_ref().and_then(|process| process.limit).map(Bytes::get);
    let mut later = 0;
    let mut found = Vec::new();
    for (index, action) in actions.iter().enumerate().rev() {
        match action {
            Action::Alloc => later += 1,
            Action::OutOfMemory => {
                let Some(event) = device.events.get(index) else { continue };
                let process = trace.process.as_ref();
                let sample =
                    process.and_then(|process| process.device_sample_near(device.device, event.time_us));
                let free = event.device_free().or(sample.map(|sample| sample.free)).map(Bytes::get);
                let held = over_time.held_at_failure(index);
                let left = limit.map(|limit| {
                    limit.saturating_sub(held.unwrap_or(0).saturating_add(over_time.context_bytes))
                });
                // The limit failed it if the request exceeds the limit, or if the GPU had room for it.
                let size = event.size.get();
                let is_limit = left.is_some_and(|left| size > left || free.is_some_and(|free| free >= size));
                found.push((
                    index,
                    FailureRow {
                        time_us: Some(event.time_us).filter(|&time| time > 0),
                        device: Some(device.device.0),
                        requested_bytes: Some(size),
                        free_bytes: if is_limit { left } else { free },
                        limit_bytes: limit.filter(|_| is_limit),
                        held_bytes: held,
                        place: line_of(trace, event.stack),
                        later_allocations: later,
                        ..FailureRow::new(recording.to_owned(), FailureKind::DeviceMemory)
                    },
                ));
                if found.len() == MOST_FAILURES {
                    break;
                }
            }
            _ => {}
        }
    }
    found.reverse();
    found
}

/// Failures that are not events of a device: contexts and pinned memory.
fn other_failures(trace: &Trace, process: &ProcessRecord, recording: &str) -> Vec<FailureRow> {
    let contexts = process.refused_contexts.iter().map(|context| FailureRow {
        time_us: Some(context.time_us),
        device: Some(context.device.0),
        requested_bytes: (!context.size.is_zero()).then_some(context.size.get()),
        free_bytes: process
            .device_sample_near(context.device, context.time_us)
            .map(|sample| sample.free.get()),
        place: line_of(trace, context.stack),
        later_allocations: trace
            .devices
            .iter()
            .flat_map(|device| device.events.iter())
            .filter(|event| event.action == Action::Alloc && event.time_us > context.time_us)
            .count() as u64,
        ..FailureRow::new(recording.to_owned(), FailureKind::Context)
    });
    let mut found: Vec<FailureRow> = contexts.take(MOST_FAILURES).collect();
    if process.pinned.refusals > 0 {
        found.push(FailureRow {
            requested_bytes: Some(process.pinned.largest_refused.get()),
            ..FailureRow::new(recording.to_owned(), FailureKind::PinnedMemory)
        });
    }
    found
}

/// The fixes of the most likely cause that has some.
fn first_fixes(explanation: &Explanation) -> &[Fix] {
    let mut fixes = explanation.causes.iter().map(|finding| finding.fixes.as_slice());
    fixes.find(|fixes| !fixes.is_empty()).unwrap_or_default()
}

/// Adds the cause that the recording alone shows.
fn explain(trace: &Trace, device: Option<DeviceIndex>, row: &mut RecordingRow) {
    let explanation = explain_trace(trace, &TraceQuestion { device, ..TraceQuestion::default() });
    explanation.verdict.cause.name().clone_into(&mut row.cause);
    explanation.verdict.certainty.name().clone_into(&mut row.certainty);
    let fixes = first_fixes(&explanation).iter().take(MOST_FIXES);
    row.fixes = fixes.map(|fix| (fix.action.clone(), fix.command.clone())).collect();
    row.summary = explanation.verdict.summary;
    row.framework = row.framework.take().or(explanation.input.framework.id().map(str::to_owned));
}
