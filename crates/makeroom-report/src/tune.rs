//! The result of `makeroom tune`: the one line to paste, what it saves, what it costs.

use std::fmt::Write as _;

use makeroom_core::Bytes;
use makeroom_sim::{ComparedRun, Trial, Tuning};
use serde_json::{Value, json};

use crate::replay::{driver_time, replay_run_json};
use crate::table::{Column, table};
use crate::text::{COMMAND, DIM, LEAST_COLUMNS, MARGIN, TITLE};
use crate::wrap::wrap;

/// Rows of the table of settings.
const MOST_ROWS: usize = 8;
/// The variable that every version of PyTorch reads.
const VARIABLE: &str = "PYTORCH_CUDA_ALLOC_CONF";

/// The line to paste for a setting.
fn line_to_paste(settings: &str) -> String {
    if settings.is_empty() { format!("unset {VARIABLE}") } else { format!("export {VARIABLE}={settings}") }
}

/// The setting to change to: it serves the recording, and better than the recorded one.
fn worthwhile(tuning: &Tuning) -> Option<&Trial> {
    tuning.best().filter(|best| tuning.is_worth_it && best.run.outcome.refusal.is_none())
}

/// The result as JSON.
pub fn tune_json(tuning: &Tuning, memory: Option<Bytes>, notes: &[String]) -> Value {
    let trial = |trial: &Trial| {
        let mut value = replay_run_json(&trial.run);
        value["settings"] = json!(trial.settings);
        value
    };
    let best = worthwhile(tuning);
    json!({
        "memory_bytes": memory.map(Bytes::get),
        "recorded": replay_run_json(&tuning.recorded),
        "best": best.map(|best| json!({
            "settings": best.settings,
            "command": line_to_paste(&best.settings),
            "saves_bytes": Bytes::new(tuning.recorded.outcome.peak_reserved)
                .difference(Bytes::new(best.run.outcome.peak_reserved)),
            "driver_time_us": best.run.outcome.driver_nanoseconds / 1000,
        })),
        "trials": tuning.trials.iter().map(trial).collect::<Vec<_>>(),
        "notes": notes,
    })
}

/// The result as text.
pub fn tune_text(tuning: &Tuning, memory: Option<Bytes>, notes: &[String], columns: usize) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let mut out = String::new();
    let _ = writeln!(out);
    match worthwhile(tuning) {
        Some(best) => better(&mut out, tuning, best, memory, columns),
        None => nothing_better(&mut out, tuning, memory, columns),
    }
    let headings =
        [("setting", false), ("reserved", true), ("÷ live", true), ("driver time", true), ("", false)];
    let headings = headings.map(|(heading, is_number)| Column { heading, is_number });
    let mut rows = vec![row("as recorded", &tuning.recorded)];
    rows.extend(tuning.trials.iter().take(MOST_ROWS).map(|trial| {
        row(if trial.settings.is_empty() { "PyTorch's defaults" } else { &trial.settings }, &trial.run)
    }));
    let _ = writeln!(out);
    table(&mut out, &headings, &rows);
    if tuning.trials.len() > MOST_ROWS {
        let _ =
            writeln!(out, "{MARGIN}  {DIM}and {} more, none better{DIM:#}", tuning.trials.len() - MOST_ROWS);
    }
    for note in notes {
        for line in wrap(&format!("note: {note}"), columns - 2) {
            let _ = writeln!(out, "{MARGIN}{DIM}{line}{DIM:#}");
        }
    }
    out
}

fn better(out: &mut String, tuning: &Tuning, best: &Trial, memory: Option<Bytes>, columns: usize) {
    let _ = writeln!(out, "{MARGIN}{COMMAND}{}{COMMAND:#}\n", line_to_paste(&best.settings));
    let (before, after) = (&tuning.recorded.outcome, &best.run.outcome);
    let reserved = Bytes::new(after.peak_reserved);
    let saved = Bytes::new(before.peak_reserved) - reserved;
    let fits = match (memory, before.refusal) {
        (Some(memory), Some(_)) => {
            format!("All recorded requests fit in {memory}, where the recorded setting runs out. ")
        }
        _ => String::new(),
    };
    let gain = if saved.is_zero() {
        format!("It reserves {reserved} at its peak.")
    } else {
        format!("It reserves {reserved} at its peak, {saved} less than recorded.")
    };
    let cost = format!(
        "The driver takes {} instead of {} over the run.",
        driver_time(after.driver_nanoseconds),
        driver_time(before.driver_nanoseconds)
    );
    for line in wrap(&format!("{fits}{gain} {cost}"), columns - 2) {
        let _ = writeln!(out, "{MARGIN}{line}");
    }
}

fn nothing_better(out: &mut String, tuning: &Tuning, memory: Option<Bytes>, columns: usize) {
    let recorded = &tuning.recorded.outcome;
    let reserved = Bytes::new(recorded.peak_reserved);
    let text = match (memory, recorded.refusal) {
        (Some(memory), Some(_)) => format!(
            "No setting makes this run complete in {memory}: at most {} was live when it ran out.",
            Bytes::new(recorded.peak_live)
        ),
        _ => format!(
            "The recorded setting is as good as any: it reserves {reserved} at its peak for {} live.",
            Bytes::new(recorded.peak_live)
        ),
    };
    let _ = writeln!(out, "{MARGIN}{TITLE}Nothing to change{TITLE:#}");
    for line in wrap(&text, columns - 2) {
        let _ = writeln!(out, "{MARGIN}{line}");
    }
}

fn row(name: &str, run: &ComparedRun) -> Vec<String> {
    vec![
        name.to_owned(),
        Bytes::new(run.outcome.peak_reserved).to_string(),
        run.reserved_over_live().map_or(String::new(), |ratio| format!("{ratio:.3}")),
        driver_time(run.outcome.driver_nanoseconds),
        run.outcome
            .refusal
            .map_or(String::new(), |refusal| format!("out of memory: {}", Bytes::new(refusal.bytes))),
    ]
}
