//! The response for `/api/inputs`: the inputs, their verdicts, and the devices with their key moments.

use makeroom_core::{Bytes, Trace};
use serde_json::{Value, json};

use crate::input::{Input, Recording};
use crate::moment::largest_hole;
use crate::timeline::Timeline;
use crate::viewer::Change;

/// Maximum number of failed allocations to list.
const MOST_FAILURES: usize = 200;
/// For how many of them to compute the largest free block, which costs as much as a moment.
const MOST_HOLES: usize = 16;

/// One input.
pub(crate) fn input(input: &Input, change: Change) -> Value {
    let devices = input
        .trace
        .iter()
        .flat_map(|recording| recording.devices.iter().map(|timeline| device(input, recording, timeline)));
    json!({
        "name": input.name,
        "kind": input.kind,
        "bytes": input.bytes,
        "changed": change != Change::Same,
        "vanished": change == Change::Vanished,
        "why": input.why,
        "text": input.text,
        "devices": devices.collect::<Vec<_>>(),
    })
}

fn device(input: &Input, recording: &Recording, timeline: &Timeline) -> Value {
    let trace = &recording.trace;
    let device = timeline.device(trace);
    let events = device.events.len();
    let identity = trace
        .process
        .as_ref()
        .and_then(|process| process.devices.iter().find(|identity| identity.device == device.device));
    let (peak, live) = timeline.allocations.peak;
    let (total, limit) = room(input, trace, identity.map(|identity| identity.total));
    json!({
        "device": device.device.0,
        "name": identity.map(|identity| &identity.name),
        "events": events,
        "first_time": timeline.time(trace, 0),
        "last_time": timeline.time(trace, events),
        "levels": timeline.series.levels(),
        "total": total.map(Bytes::get),
        "limit": limit.map(Bytes::get),
        "has_segments": timeline.reserved.has_segments,
        "peak": { "event": peak, "live": live, "reserved": timeline.sum_at(trace, peak).reserved },
        "failures": failures(recording, timeline),
        "failures_total": timeline.failures.len(),
        "sites": timeline.sites.list.iter().filter(|site| site.count > 0).count(),
        "start": timeline.interest(),
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
                "free": event.device_free().map(Bytes::get),
                "largest_hole": hole.flatten(),
            }))
        })
        .collect()
}
