//! A trace-event file for Perfetto: live and reserved bytes as counters, allocations as slices, failed allocations as
//! instants; with groups, also the live bytes of each.
//!
//! Allocations overlap, but slices of one track must not, so each goes to the first free track. Programs have
//! thousands of small blocks, so slices are limited to the largest allocations, as many as stay readable. The
//! counters include all of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write;

use makeroom_core::{Action, Trace};
use makeroom_explain::{Allocation, By};
use serde_json::{Value, json};

use crate::ExportError;
use crate::groups::{Groups, Live};
use crate::history::{History, Names, Totals};

/// Maximum number of slices per device.
const MOST_SLICES: usize = 50_000;
/// Maximum number of slice tracks per device.
const MOST_TRACKS: usize = 500;
/// Maximum number of points per counter.
const MOST_POINTS: usize = 500_000;

/// The beginning of every file.
pub(crate) const START: &[u8] = b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";

pub(crate) fn write(trace: &Trace, by: Option<By>, to: impl Write) -> Result<Option<String>, ExportError> {
    let mut file = File { to, is_first: true };
    let mut names = Names::new(trace);
    let mut left_out = 0;
    file.to.write_all(START)?;
    for (index, device) in trace.devices.iter().enumerate() {
        let history = History::new(device);
        let process = index + 1;
        file.add(&json!({ "ph": "M", "name": "process_name", "pid": process,
            "args": { "name": format!("GPU {}", device.device) } }))?;
        counters(&mut file, &history, process)?;
        if let Some(by) = by {
            of_groups(&mut file, &history, &Groups::new(trace, &history, by), (process, by))?;
        }
        left_out += slices(&mut file, &history, &mut names, process)?;
    }
    let exporter = concat!("makeroom ", env!("CARGO_PKG_VERSION"));
    let about = json!({ "exporter": exporter, "allocations_without_a_slice": left_out });
    write!(file.to, "\n],\"otherData\":{about}}}\n")?;
    file.to.flush()?;
    Ok((left_out > 0)
        .then(|| format!("the {left_out} smallest allocations have no slice; the counters include them")))
}

struct File<W> {
    to: W,
    is_first: bool,
}

impl<W: Write> File<W> {
    fn add(&mut self, event: &Value) -> Result<(), ExportError> {
        if !self.is_first {
            self.to.write_all(b",\n")?;
        }
        self.is_first = false;
        Ok(serde_json::to_writer(&mut self.to, event)?)
    }
}

/// The time of an event in microseconds; its index if no times were recorded.
fn time(history: &History<'_>, event: usize) -> u64 {
    history.time(event).unwrap_or(event as u64)
}

fn counters<W: Write>(file: &mut File<W>, history: &History<'_>, process: usize) -> Result<(), ExportError> {
    let has_segments = history.has_segments();
    let every = history.device.events.len().div_ceil(MOST_POINTS).max(1);
    // If several events become one point, keep the one with the most live memory.
    let mut highest: Option<(Totals, usize)> = None;
    for (index, event, totals) in history.events() {
        if event.action == Action::OutOfMemory {
            file.add(&json!({ "ph": "i", "s": "p", "name": "out of memory", "pid": process, "tid": 0,
                "ts": time(history, index),
                "args": { "bytes": event.size.get(), "free": event.device_free().map(makeroom_core::Bytes::get) } }))?;
        }
        if highest.is_none_or(|(before, _)| totals.live >= before.live) {
            highest = Some((totals, index));
        }
        if (index + 1).is_multiple_of(every) || index + 1 == history.device.events.len() {
            let Some((totals, event)) = highest.take() else { continue };
            let at = time(history, event);
            file.add(
                &json!({ "ph": "C", "name": "live", "pid": process, "ts": at, "args": { "bytes": totals.live } }),
            )?;
            if has_segments {
                file.add(&json!({ "ph": "C", "name": "reserved", "pid": process, "ts": at,
                    "args": { "bytes": totals.reserved } }))?;
            }
        }
    }
    Ok(())
}

/// Writes the live bytes of each group. Each point is the moment with the most live memory among its events.
fn of_groups<W: Write>(
    file: &mut File<W>,
    history: &History<'_>,
    groups: &Groups,
    (process, by): (usize, By),
) -> Result<(), ExportError> {
    let events = history.device.events.len();
    let every = events.saturating_mul(groups.names.len()).div_ceil(MOST_POINTS).max(1);
    let mut live = Live::new(groups, history);
    let mut highest: Option<(u64, usize, Vec<u64>)> = None;
    for (index, event, totals) in history.events() {
        live.follow(groups, history, index, &event);
        if highest.as_ref().is_none_or(|(before, _, _)| totals.live >= *before) {
            highest = Some((totals.live, index, live.bytes.clone()));
        }
        if (index + 1).is_multiple_of(every) || index + 1 == events {
            let Some((_, event, bytes)) = highest.take() else { continue };
            let args: serde_json::Map<String, Value> =
                groups.names.iter().cloned().zip(bytes.into_iter().map(Value::from)).collect();
            file.add(&json!({ "ph": "C", "name": format!("live by {}", by.id()), "pid": process,
                "ts": time(history, event), "args": args }))?;
        }
    }
    Ok(())
}

/// Writes the largest allocations as slices. Returns how many were left out.
fn slices<W: Write>(
    file: &mut File<W>,
    history: &History<'_>,
    names: &mut Names<'_>,
    process: usize,
) -> Result<usize, ExportError> {
    let mut largest: Vec<(u64, u32)> =
        history.all().map(|(number, allocation)| (allocation.requested, number)).collect();
    let all = largest.len();
    largest.sort_unstable_by_key(|&(size, number)| (Reverse(size), number));
    largest.truncate(MOST_SLICES);
    // By start: allocation numbers are in that order.
    let mut chosen: Vec<u32> = largest.into_iter().map(|(_, number)| number).collect();
    chosen.sort_unstable();
    let last = time(history, history.device.events.len().saturating_sub(1));
    // Tracks in use, by the time when they become free; and free tracks.
    let mut taken: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut free: BinaryHeap<Reverse<usize>> = (1..=MOST_TRACKS).map(Reverse).collect();
    let mut written = 0;
    for number in chosen {
        let Some(allocation) = history.get(number) else { continue };
        let begin = time(history, allocation.born.unwrap_or(0));
        let end = allocation.died.map_or(last, |event| time(history, event)).max(begin);
        while let Some(&Reverse((until, track))) = taken.peek()
            && until <= begin
        {
            taken.pop();
            free.push(Reverse(track));
        }
        let Some(Reverse(track)) = free.pop() else { continue };
        // A slice of zero length still occupies its track.
        taken.push(Reverse((end.max(begin + 1), track)));
        file.add(&slice(&allocation, names, process, track, (begin, end)))?;
        written += 1;
    }
    Ok(all - written)
}

fn slice(
    allocation: &Allocation,
    names: &mut Names<'_>,
    process: usize,
    track: usize,
    (begin, end): (u64, u64),
) -> Value {
    let site = names.site(allocation.stack);
    let name = if site.is_empty() { "no stack recorded" } else { site }.to_owned();
    json!({
        "ph": "X", "name": name, "cat": "allocation", "pid": process, "tid": track, "ts": begin, "dur": end - begin,
        "args": {
            "bytes": allocation.requested,
            "address": format!("{:#x}", allocation.address),
            "stream": format!("{:#x}", allocation.stream.0),
            "stack": names.stack(allocation.stack),
        },
    })
}
