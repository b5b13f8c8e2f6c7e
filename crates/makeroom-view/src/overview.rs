//! The response for `/api/inputs`: the inputs, their verdicts, and the devices with their key moments.

use makeroom_core::{Bytes, Trace};
use serde_json::{Value, json};

use crate::capacity::Capacity;
use crate::input::{Input, Recording};
use crate::moment::{largest_hole, unused};
use crate::timeline::{Grouping, Timeline};
use crate::viewer::Change;

/// Maximum number of failed allocations to list.
const MOST_FAILURES: usize = 200;
/// For how many of them to compute the largest free block, which costs as much as a moment.
const MOST_HOLES: usize = 16;
/// Characters of a command line.
const MOST_COMMAND: usize = 1000;

/// One input.
pub(crate) fn input(input: &Input, change: Change) -> Value {
    let devices = input.trace.iter().flat_map(|recording| {
        let timelines = recording.devices.iter().zip(&recording.capacities);
        timelines.map(|(timeline, capacity)| device(input, recording, timeline, capacity))
    });
    let first = input.trace.as_ref().map_or(0, |recording| first_device(input, recording));
    json!({
        "name": input.name,
        "kind": input.kind,
        "bytes": input.bytes,
        "changed": change != Change::Same,
        "vanished": change == Change::Vanished,
        "why": input.why,
        "text": input.text,
        "about": input.trace.as_ref().map(about),
        "first_device": first,
        "devices": devices.collect::<Vec<_>>(),
    })
}

/// The device that the verdict is about: its index in the list.
fn first_device(input: &Input, recording: &Recording) -> usize {
    let trace = &recording.trace;
    let explained = input.why["ledger"]["device"].as_u64();
    let is_it = |timeline: &Timeline| {
        let device = u64::from(timeline.device(trace).device.0);
        if input.is_about_host { timeline.is_pinned(trace) } else { Some(device) == explained }
    };
    recording.devices.iter().position(is_it).unwrap_or(0)
}

/// The program and its run, as far as they are known.
fn about(recording: &Recording) -> Value {
    let process = recording.trace.process.as_ref();
    let identity = process.map(|process| &process.identity);
    let command = identity.map(|identity| identity.command_line.join(" ")).filter(|line| !line.is_empty());
    json!({
        "program": command.map(|line| line.chars().take(MOST_COMMAND).collect::<String>()),
        "pid": identity.map(|identity| identity.pid),
        "host": identity.map(|identity| &identity.host),
        "began": identity.map(|identity| identity.began_us),
        "duration": process.map(|process| process.recorded_us),
        "settings": recording.trace.settings.text,
    })
}

fn device(input: &Input, recording: &Recording, timeline: &Timeline, capacity: &Capacity) -> Value {
    let trace = &recording.trace;
    let device = timeline.device(trace);
    let events = device.events.len();
    let identity = trace
        .process
        .as_ref()
        .and_then(|process| process.devices.iter().find(|identity| identity.device == device.device))
        .filter(|_| !timeline.is_pinned(trace));
    let (peak, live) = timeline.allocations.peak;
    let (total, limit) = if timeline.is_pinned(trace) {
        (None, None)
    } else {
        room(input, trace, identity.map(|identity| identity.total))
    };
    let Grouping { sites, series } = &timeline.grouping;
    let (most_at, most) = series.peak_reserved(trace, timeline, sites);
    let (unused_at_peak, unused_at_start) = unused(recording, timeline);
    json!({
        "device": device.device.0,
        "kind": if timeline.is_pinned(trace) { "pinned" } else { "gpu" },
        "name": identity.map(|identity| &identity.name),
        "events": events,
        "first_time": timeline.time(trace, 0),
        "last_time": timeline.time(trace, events),
        "levels": series.levels(),
        "total": total.map(Bytes::get),
        "limit": limit.map(Bytes::get),
        "has_segments": timeline.reserved.has_segments,
        "peak": { "event": peak, "live": live, "reserved": timeline.sum_at(trace, peak).reserved,
            "unused": unused_at_peak },
        "peak_reserved": { "event": most_at, "reserved": most },
        "capacity": capacity,
        "failures": failures(recording, timeline),
        "failures_total": timeline.failures.len(),
        "sites": sites.list.iter().filter(|site| site.count > 0).count(),
        "start": timeline.interest(),
        "unused_at_start": unused_at_start,
        "history": history(timeline, events, device.overflowed),
    })
}

/// The size of the GPU and the limit on it, if known.
fn room(input: &Input, trace: &Trace, card: Option<Bytes>) -> (Option<Bytes>, Option<Bytes>) {
    let told = match input.room {
        makeroom_explain::Room::Card(card) => Some(card),
        _ => None,
    };
    let recorded = trace.process.as_ref().and_then(|process| process.limit);
    (told.or(card.filter(|card| !card.is_zero())), input.room.limit().or(recorded))
}

fn history(timeline: &Timeline, events: usize, overflowed: Option<bool>) -> &'static str {
    if events == 0 {
        "none"
    } else if overflowed == Some(true) || timeline.allocations.older > 0 {
        "partial"
    } else {
        "whole"
    }
}

fn failures(recording: &Recording, timeline: &Timeline) -> Vec<Value> {
    let device = timeline.device(&recording.trace);
    let listed = timeline.failures.iter().take(MOST_FAILURES).enumerate();
    listed
        .filter_map(|(number, &position)| {
            let event = device.events.get(position)?;
            let hole = (number < MOST_HOLES)
                .then(|| largest_hole(recording, timeline, position, (event.size.get(), event.stream)));
            Some(json!({
                "event": position,
                "size": event.size.get(),
                "reserved": timeline.sum_at(&recording.trace, position).reserved,
                "free": event.device_free().map(Bytes::get),
                "largest_hole": hole.flatten(),
            }))
        })
        .collect()
}
