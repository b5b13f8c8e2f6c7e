//! The result of `makeroom tune`: the line to paste, the memory it saves, and its cost.

use std::fmt::Write as _;

use makeroom_core::Bytes;
use makeroom_sim::{ComparedRun, Trial, Tuning};
use serde_json::{Value, json};

use crate::json::list;
use crate::replay::{driver_time, replay_run_json};
use crate::table::{Column, TableRow, table};
use crate::text::{COMMAND, DIM, LEAST_COLUMNS, MARGIN, TITLE};
use crate::wrap::wrap;

/// Maximum number of rows in the table of settings.
const MOST_ROWS: usize = 8;
/// The variable that every version of PyTorch reads.
const VARIABLE: &str = "PYTORCH_CUDA_ALLOC_CONF";

/// The line to paste for a setting.
fn line_to_paste(settings: &str) -> String {
    if settings.is_empty() { format!("unset {VARIABLE}") } else { format!("export {VARIABLE}={settings}") }
}

/// The setting to change to: the recording fits, and better than with the recorded one.
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
        "recorded_in_place": tuning.recorded_in_place.as_ref().map(replay_run_json),
        "best": best.map(|best| json!({
            "settings": best.settings,
            "command": line_to_paste(&best.settings),
            "saves_bytes": Bytes::new(tuning.recorded.outcome.peak_reserved)
                .difference(Bytes::new(best.run.outcome.peak_reserved)),
            "driver_time_us": best.run.outcome.driver_nanoseconds / 1000,
        })),
        "trials": list(&tuning.trials, trial),
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
    let headings = [
        Column::text("setting"),
        Column::number("reserved"),
        Column::number("÷ live").dropped(1),
        Column::number("driver time").dropped(2),
    ];
    let mut rows = vec![row("as recorded", &tuning.recorded)];
    rows.extend(tuning.trials.iter().take(MOST_ROWS).map(|trial| {
        row(if trial.settings.is_empty() { "PyTorch's defaults" } else { &trial.settings }, &trial.run)
    }));
    let _ = writeln!(out);
    table(&mut out, &headings, &rows, columns);
    if tuning.trials.len() > MOST_ROWS {
        let _ =
            writeln!(out, "{MARGIN}  {DIM}and {} more, none better{DIM:#}", tuning.trials.len() - MOST_ROWS);
    }
    let recorded = tuning.recorded.outcome.peak_reserved;
    let in_place = tuning.recorded_in_place.as_ref().filter(|run| run.outcome.peak_reserved != recorded);
    let in_place = in_place.map(in_place_note);
    for note in in_place.iter().chain(notes) {
        for line in wrap(&format!("note: {note}"), columns - 2) {
            let _ = writeln!(out, "{MARGIN}{DIM}{line}{DIM:#}");
        }
    }
    out
}

/// The note for a recording in which blocks from before its start made a difference.
fn in_place_note(run: &ComparedRun) -> String {
    format!(
        "counting blocks allocated before the recording started, the recorded setting peaks at {} reserved; the runs compared here all start empty",
        Bytes::new(run.outcome.peak_reserved)
    )
}

fn better(out: &mut String, tuning: &Tuning, best: &Trial, memory: Option<Bytes>, columns: usize) {
    let _ = writeln!(out, "{MARGIN}{COMMAND}{}{COMMAND:#}\n", line_to_paste(&best.settings));
    let (before, after) = (&tuning.recorded.outcome, &best.run.outcome);
    let reserved = Bytes::new(after.peak_reserved);
    let saved = Bytes::new(before.peak_reserved) - reserved;
    let fits = match (memory, before.refusal) {
        (Some(memory), Some(_)) => {
            format!(
                "The run fits in {memory} with this setting; with the recorded one it runs out of memory. "
            )
        }
        _ => String::new(),
    };
    let gain = if saved.is_zero() {
        format!("Peak reserved memory: {reserved}.")
    } else {
        format!("Peak reserved memory: {reserved}, {saved} less than recorded.")
    };
    let cost = format!(
        "Time in driver calls: {} instead of {}.",
        driver_time(after.driver_nanoseconds),
        driver_time(before.driver_nanoseconds)
    );
    let pool = if best.settings == "expandable_segments:True" {
        " `makeroom run --pool` turns it on for one run."
    } else {
        ""
    };
    for line in wrap(&format!("{fits}{gain} {cost}{pool}"), columns - 2) {
        let _ = writeln!(out, "{MARGIN}{line}");
    }
}

fn nothing_better(out: &mut String, tuning: &Tuning, memory: Option<Bytes>, columns: usize) {
    let recorded = &tuning.recorded.outcome;
    let reserved = Bytes::new(recorded.peak_reserved);
    let text = match (memory, recorded.refusal) {
        (Some(memory), Some(_)) => format!(
            "No setting makes this run fit in {memory}: up to {} was live when it ran out.",
            Bytes::new(recorded.peak_live)
        ),
        _ => format!(
            "No other setting is better: the recorded one reserves {reserved} at its peak, with {} live.",
            Bytes::new(recorded.peak_live)
        ),
    };
    let _ = writeln!(out, "{MARGIN}{TITLE}Nothing to change{TITLE:#}");
    for line in wrap(&text, columns - 2) {
        let _ = writeln!(out, "{MARGIN}{line}");
    }
}

fn row(name: &str, run: &ComparedRun) -> TableRow {
    let cells = vec![
        name.to_owned(),
        Bytes::new(run.outcome.peak_reserved).to_string(),
        run.reserved_over_live().map_or(String::new(), |ratio| format!("{ratio:.3}")),
        driver_time(run.outcome.driver_nanoseconds),
    ];
    let refusal = run.outcome.refusal;
    let remark =
        refusal.map_or(String::new(), |refusal| format!("out of memory: {}", Bytes::new(refusal.bytes)));
    TableRow { cells, remark }
}

#[cfg(test)]
mod tests {
    use makeroom_sim::Outcome;

    use super::*;
    use crate::wrap::plain;

    fn run(mib: u64) -> ComparedRun {
        let outcome = Outcome { peak_live: 50 << 20, peak_reserved: mib << 20, ..Outcome::default() };
        ComparedRun { allocator: "recorded".to_owned(), is_estimate: false, outcome, smallest_memory: None }
    }

    #[test]
    fn what_really_happened_is_told_where_it_differs() {
        let mut tuning =
            Tuning { recorded: run(60), recorded_in_place: None, trials: Vec::new(), is_worth_it: false };
        assert!(!plain(&tune_text(&tuning, None, &[], 80)).contains("note:"));
        tuning.recorded_in_place = Some(run(60));
        assert!(!plain(&tune_text(&tuning, None, &[], 80)).contains("note:"));
        tuning.recorded_in_place = Some(run(100));
        let text = plain(&tune_text(&tuning, None, &["of the recording".to_owned()], 80));
        let notes =
            text.split_once("note:").map(|(_, notes)| notes.split_whitespace().collect::<Vec<_>>().join(" "));
        let notes = notes.unwrap_or_default();
        assert!(notes.contains("the recorded setting peaks at 100.00 MiB reserved"), "{text}");
        assert!(notes.ends_with("note: of the recording"), "{text}");
        let json = tune_json(&tuning, None, &[]);
        assert_eq!(json["recorded_in_place"]["peak_reserved_bytes"], 100 << 20);
    }
}
