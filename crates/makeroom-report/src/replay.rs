//! The result of `makeroom replay`: a table of allocators, and the check of the model.

use std::fmt::Write as _;

use makeroom_core::{Bytes, CallCount};
use makeroom_sim::{Check, ComparedRun, Comparison, LimitBounds};
use serde_json::{Value, json};

use crate::json::list;
use crate::table::{Column, TableRow, table};
use crate::text::{DIM, LEAST_COLUMNS, MARGIN, TITLE};
use crate::wrap::wrap;

/// The result as JSON.
pub fn replay_json(report: &Comparison, memory: Option<Bytes>) -> Value {
    let mut value = json!({
        "trace": {
            "events": report.events,
            "allocations": report.allocations,
            "peak_live_bytes": report.peak_live.get(),
            "time_us": report.recorded_us,
            "calls": calls_json(&report.calls),
        },
        "memory_bytes": memory.map(Bytes::get),
    });
    if let Some(check) = &report.check {
        value["check"] = json!({
            "allocations": check.allocations,
            "matched": check.matched,
            "mismatched": check.mismatched,
            "first_mismatch": check.first_mismatch.as_ref().map(|mismatch| json!({
                "event": mismatch.event,
                "recorded": mismatch.recorded,
                "predicted": mismatch.predicted,
            })),
            "peak_reserved_bytes": check.peak_reserved,
            "older_blocks": check.older_blocks,
            "assumed_blocks": check.assumed_blocks,
            "lost_events": check.lost_events,
            "assumed_pools": check.assumed_pools,
            "lacks_segment_events": check.lacks_segment_events,
            "inferred_limits": list(&check.inferred_limits, |limit| json!({
                "from_event": limit.from_event,
                "at_least_bytes": limit.at_least,
                "at_most_bytes": limit.at_most,
            })),
        });
    }
    value["runs"] = report.runs.iter().map(replay_run_json).collect();
    value["notes"] = json!(report.notes);
    value
}

/// One run as JSON.
pub fn replay_run_json(run: &ComparedRun) -> Value {
    json!({
        "allocator": run.allocator,
        "estimate": run.is_estimate,
        "peak_live_bytes": run.outcome.peak_live,
        "peak_reserved_bytes": run.outcome.peak_reserved,
        "reserved_over_live": run.reserved_over_live(),
        "driver_calls": run.outcome.driver_calls,
        "driver_time_us": run.outcome.driver_nanoseconds / 1000,
        "driver_time_second_half_us": run.outcome.late_driver_nanoseconds / 1000,
        "oom": run.outcome.refusal.map(|refusal| json!({ "event": refusal.event, "bytes": refusal.bytes })),
        "smallest_memory_bytes": run.smallest_memory,
    })
}

/// Kinds of call by name; those of a later version have none.
fn calls_json(calls: &[CallCount]) -> Value {
    let mut named = serde_json::Map::new();
    for call in calls.iter().filter(|call| call.what != "other") {
        named.insert(call.what.to_owned(), json!({ "done": call.done, "failed": call.failed }));
    }
    Value::Object(named)
}

/// The result as text.
pub fn replay_text(report: &Comparison, memory: Option<Bytes>, columns: usize) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let mut out = String::new();
    let memory = memory.map_or(String::new(), |memory| format!(", in {memory}"));
    let _ = writeln!(
        out,
        "\n{MARGIN}{TITLE}{} events, {} allocations, live peak {}{memory}{TITLE:#}\n",
        report.events, report.allocations, report.peak_live
    );
    if let Some(check) = &report.check {
        check_text(&mut out, check, columns);
    }
    if !report.runs.is_empty() {
        runs_text(&mut out, &report.runs, columns);
    }
    for note in &report.notes {
        for line in wrap(&format!("note: {note}"), columns - 2) {
            let _ = writeln!(out, "{MARGIN}{DIM}{line}{DIM:#}");
        }
    }
    out
}

fn check_text(out: &mut String, check: &Check, columns: usize) {
    let verdict = match &check.first_mismatch {
        Some(_) if check.lacks_segment_events => {
            "cannot check: the recording lacks segment events (segment_alloc, segment_free, segment_map or segment_unmap)"
                .to_owned()
        }
        None => format!(
            "all {} predictions match the recording: every address, every segment, every failure",
            check.matched
        ),
        Some(mismatch) => format!(
            "{} of {} predictions differ from the recording; the first at event {}: recorded {}, predicted {}",
            check.mismatched,
            check.matched + check.mismatched,
            mismatch.event,
            mismatch.recorded,
            mismatch.predicted
        ),
    };
    for line in wrap(&verdict, columns - 2) {
        let _ = writeln!(out, "{MARGIN}{line}");
    }
    if !check.inferred_limits.is_empty() {
        let limits: Vec<String> = check.inferred_limits.iter().map(limit_text).collect();
        let line = format!(
            "the memory limit is not in the snapshot; garbage collection is consistent with a limit of {}",
            limits.join(", ")
        );
        for line in wrap(&line, columns - 2) {
            let _ = writeln!(out, "{MARGIN}{line}");
        }
    }
    if check.older_blocks > 0 && !check.lacks_segment_events {
        let _ = writeln!(
            out,
            "{MARGIN}{} blocks were allocated before the recording started; the sizes of {} of them are assumed",
            check.older_blocks, check.assumed_blocks
        );
    }
    let _ = writeln!(out);
}

fn limit_text(limit: &LimitBounds) -> String {
    let at_least = Bytes::new(limit.at_least).to_string();
    let range = match limit.at_most.map(|at_most| Bytes::new(at_most).to_string()) {
        None => format!("at least {at_least}"),
        Some(at_most) if at_most == at_least => at_least,
        Some(at_most) if limit.at_least == 0 => format!("at most {at_most}"),
        Some(at_most) => format!("{at_least} to {at_most}"),
    };
    if limit.from_event == 0 { range } else { format!("{range} from event {} on", limit.from_event) }
}

fn runs_text(out: &mut String, runs: &[ComparedRun], width: usize) {
    let columns = [
        Column::text("allocator"),
        Column::number("reserved"),
        Column::number("÷ live").dropped(3),
        Column::number("driver calls").dropped(1),
        Column::number("driver time").dropped(2),
        Column::number("min memory").dropped(4),
    ];
    let rows: Vec<TableRow> = runs.iter().map(run_row).collect();
    table(out, &columns, &rows, width);
}

fn run_row(run: &ComparedRun) -> TableRow {
    let outcome = &run.outcome;
    let remark = outcome.refusal.map_or(String::new(), |refusal| {
        let place = refusal.event.map_or("the start".to_owned(), |event| format!("event {event}"));
        format!("out of memory at {place}: {}", Bytes::new(refusal.bytes))
    });
    let cells = vec![
        format!("{}{}", run.allocator, if run.is_estimate { " (estimate)" } else { "" }),
        Bytes::new(outcome.peak_reserved).to_string(),
        run.reserved_over_live().map_or(String::new(), |ratio| format!("{ratio:.3}")),
        outcome.driver_calls.to_string(),
        driver_time(outcome.driver_nanoseconds),
        run.smallest_memory.map_or(String::new(), |bytes| Bytes::new(bytes).to_string()),
    ];
    TableRow { cells, remark }
}

/// A duration as people read it.
pub(crate) fn driver_time(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000_000 => format!("{:.0} µs", nanoseconds as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.0} ms", nanoseconds as f64 / 1e6),
        _ => format!("{:.2} s", nanoseconds as f64 / 1e9),
    }
}
