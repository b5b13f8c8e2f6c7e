//! The difference of two runs as one screen of text and as JSON. `diff_words` has its title and its sentences.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use makeroom_core::Bytes;
use makeroom_diff::{Difference, GrowingLine, LineChange, LineStatus, Source, StepGrowth, Verdict};
use makeroom_kind::Kind;
use serde_json::{Value, json};

use crate::diff_notes::{Moment, diff_notes, moments};
use crate::diff_words::{growth_rate, sentence, title};
use crate::json::list;
use crate::kinds::{kind_name, kind_words};
use crate::text::{DIM, LEAST_COLUMNS, MARGIN, TITLE};
use crate::wrap::{clip_place, wrap};

/// Lines of code that are shown without `--verbose`.
const MOST_LINES: usize = 10;

/// The place of memory without a stack.
const NO_STACK: &str = "no stack recorded (backward pass, or a thread without Python)";

/// A size with its sign.
pub(crate) fn signed(growth: i64) -> String {
    let sign = if growth < 0 { "−" } else { "+" };
    format!("{sign}{}", Bytes::new(growth.unsigned_abs()))
}

pub(crate) fn size(bytes: u64) -> String {
    Bytes::new(bytes).to_string()
}

/// The place of a line in a table.
pub(crate) fn place(line: &LineChange) -> &str {
    line.place.as_deref().unwrap_or(NO_STACK)
}

/// The difference for a terminal of `columns` columns.
pub fn diff_text(difference: &Difference, columns: usize, is_verbose: bool) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let mut out = String::new();
    let color = match difference.verdict {
        _ if difference.failed_requests.1.is_some() => AnsiColor::Red,
        Verdict::Leak(_) | Verdict::LeakInBoth(_) => AnsiColor::Yellow,
        Verdict::Same | Verdict::Shifted => AnsiColor::Green,
        _ if difference.growth() <= 0 => AnsiColor::Green,
        _ => AnsiColor::Yellow,
    };
    let style = color.on_default().bold();
    let _ = writeln!(out, "\n{MARGIN}{style}{}{style:#}", title(difference));
    for line in wrap(&sentence(difference), columns - 2) {
        let _ = writeln!(out, "{MARGIN}{line}");
    }
    kinds(&mut out, difference);
    lines(&mut out, difference, columns, if is_verbose { usize::MAX } else { MOST_LINES });
    growing(&mut out, difference, columns);
    let moved = difference.moved().count();
    if moved > 0 {
        let (lines, hold) = if moved == 1 { ("line", "holds") } else { ("lines", "hold") };
        let _ = writeln!(
            out,
            "{MARGIN}{DIM}note: {moved} {lines} moved within a file and {hold} the same memory{DIM:#}"
        );
    }
    for note in diff_notes(difference, ["the earlier run", "the later run"]) {
        for (index, line) in wrap(&note, columns - 8).iter().enumerate() {
            let indent = if index == 0 { "note: " } else { "      " };
            let _ = writeln!(out, "{MARGIN}{DIM}{indent}{line}{DIM:#}");
        }
    }
    out
}

/// What delimits the steps, if it is known.
fn step_mark(growth: &StepGrowth) -> String {
    if growth.measured_by.is_empty() { String::new() } else { format!(" (step: {})", growth.measured_by) }
}

/// The lines that grow from step to step, of each run.
fn growing(out: &mut String, difference: &Difference, columns: usize) {
    let (before, after) = &difference.step_growth;
    for (run, growth) in [("before", before), ("after", after)] {
        let Some(growth) = growth else { continue };
        let _ = writeln!(
            out,
            "\n{MARGIN}{TITLE}Growing memory{TITLE:#}, {run}: over {} steps, {}{}",
            growth.steps,
            growth_rate(growth),
            step_mark(growth)
        );
        let width = growth.lines.iter().map(|line| kind_words(&line.kind).chars().count()).max().unwrap_or(0);
        for line in &growth.lines {
            let keeper = line.keeper.as_ref().map_or(String::new(), |keeper| format!(", kept by {keeper}"));
            let place = line.place.as_deref().unwrap_or(NO_STACK);
            let place = clip_place(&format!("{place}{keeper}"), columns.saturating_sub(20 + width));
            let (bytes, kind) = (format!("+{}", size(line.bytes)), kind_words(&line.kind));
            let _ = writeln!(out, "{MARGIN}  {bytes:>12}  {kind:<width$}  {place}");
        }
    }
}

fn kinds(out: &mut String, difference: &Difference) {
    let (before, after) = difference.failed_requests;
    let moments = moments(difference);
    let are_peaks = moments == [Moment::Peak; 2];
    let heading = if are_peaks { "Peak by kind" } else { "Memory by kind" };
    let _ = writeln!(
        out,
        "\n{MARGIN}{TITLE}{heading:<18}{:>13}{:>13}{:>14}{TITLE:#}",
        "before", "after", "change"
    );
    if !are_peaks {
        let [before, after] = moments.map(|moment| match moment {
            Moment::Peak => "at peak",
            Moment::Failure => "at failure",
            Moment::End => "at the end",
        });
        let _ = writeln!(out, "{MARGIN}{DIM}{:<18}{before:>13}{after:>13}{DIM:#}", "");
    }
    let mut row = |name: &str, before: Option<u64>, after: Option<u64>| {
        let change = match (before, after) {
            (Some(before), Some(after)) if before != after => {
                signed(Bytes::new(after).difference(Bytes::new(before)))
            }
            _ => String::new(),
        };
        let [before, after] = [before, after].map(|bytes| bytes.map_or_else(|| "–".to_owned(), size));
        let row = format!("{MARGIN}  {name:<16}{before:>13}{after:>13}{change:>14}");
        let _ = writeln!(out, "{}", row.trim_end());
    };
    for kind in &difference.kinds {
        row(kind_name(kind.kind), Some(kind.before), Some(kind.after));
    }
    row("all", Some(difference.before), Some(difference.after));
    if before.or(after).is_some() {
        row("failed request", before, after);
    }
    if let (before @ Some(_), after @ Some(_)) = difference.reserved {
        row(if moments.contains(&Moment::End) { "reserved" } else { "peak reserved" }, before, after);
    }
}

fn lines(out: &mut String, difference: &Difference, columns: usize, most: usize) {
    let changed: Vec<&LineChange> = difference.changed().collect();
    if changed.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{MARGIN}{TITLE}By line, largest change first{TITLE:#}");
    let shown = || changed.iter().take(most);
    let width = shown().map(|line| kind_words(&line.kind).chars().count()).max().unwrap_or(0);
    for line in shown() {
        let status = match line.status {
            LineStatus::Same => "same",
            LineStatus::Grown => "grown",
            LineStatus::Shrunk => "shrunk",
            LineStatus::New => "new",
            LineStatus::Gone => "gone",
        };
        let moved =
            line.moved_from.as_deref().map_or(String::new(), |from| format!(" (was {})", number_of(from)));
        let place = clip_place(&format!("{}{moved}", place(line)), columns.saturating_sub(28 + width));
        let (growth, kind) = (signed(line.growth()), kind_words(&line.kind));
        let _ = writeln!(out, "{MARGIN}  {growth:>12}  {status:<6}  {kind:<width$}  {place}");
    }
    if changed.len() > most {
        let _ = writeln!(out, "{MARGIN}  {DIM}and {} more (--verbose){DIM:#}", changed.len() - most);
    }
}

/// The line number of a place. A line moves only within its file and function.
fn number_of(place: &str) -> String {
    let position = place.split_once(' ').map_or(place, |(position, _)| position);
    position.rsplit_once(':').map_or_else(|| place.to_owned(), |(_, number)| format!("line {number}"))
}

/// Growth from step to step as JSON.
fn step_growth(growth: &StepGrowth) -> Value {
    let line = |line: &GrowingLine| json!({"place": line.place, "kind": line.kind, "bytes": line.bytes, "keeper": line.keeper});
    json!({
        "steps": growth.steps,
        "measured_by": (!growth.measured_by.is_empty()).then_some(&growth.measured_by),
        "bytes": growth.bytes,
        "bytes_per_step": growth.per_step(),
        "lines": list(&growth.lines, line),
    })
}

/// The difference as JSON.
pub fn diff_json(difference: &Difference) -> Value {
    let [before_moment, after_moment] = moments(difference).map(|moment| match moment {
        Moment::Peak => "peak",
        Moment::Failure => "failure",
        Moment::End => "end",
    });
    let line = |line: &LineChange| {
        json!({
            "status": match line.status {
                LineStatus::Same => "same",
                LineStatus::Grown => "grown",
                LineStatus::Shrunk => "shrunk",
                LineStatus::New => "new",
                LineStatus::Gone => "gone",
            },
            "kind": line.kind,
            "place": line.place,
            "moved_from": line.moved_from,
            "before_bytes": line.before,
            "after_bytes": line.after,
            "before_blocks": line.blocks.0,
            "after_blocks": line.blocks.1,
        })
    };
    json!({
        "verdict": {
            "id": match difference.verdict {
                Verdict::Same => "same",
                Verdict::Shifted => "shifted",
                Verdict::Leak(_) => "leak",
                Verdict::LeakInBoth(_) => "leak_in_both",
                Verdict::OtherBatch(_) => "other_batch",
                Verdict::Line(_) => "line",
                Verdict::OneKind(_) => "kind",
                Verdict::Several => "several",
            },
            "summary": sentence(difference),
        },
        "before_bytes": difference.before,
        "after_bytes": difference.after,
        "growth_bytes": difference.growth(),
        "before_moment": before_moment,
        "after_moment": after_moment,
        "before_source": difference.sources.0.map(Source::id),
        "after_source": difference.sources.1.map(Source::id),
        "before_left_out_bytes": difference.left_out.0,
        "after_left_out_bytes": difference.left_out.1,
        "before_is_incomplete": difference.incomplete.0,
        "after_is_incomplete": difference.incomplete.1,
        "notes": diff_notes(difference, ["the earlier run", "the later run"]),
        "before_failed_request_bytes": difference.failed_requests.0,
        "after_failed_request_bytes": difference.failed_requests.1,
        "before_step_growth": difference.step_growth.0.as_ref().map(step_growth),
        "after_step_growth": difference.step_growth.1.as_ref().map(step_growth),
        "before_reserved_bytes": difference.reserved.0,
        "after_reserved_bytes": difference.reserved.1,
        "batch_ratio": difference.batch.map(|batch| batch.ratio),
        "kinds": list(&difference.kinds, |change| json!({
            "kind": Kind::id(change.kind), "before_bytes": change.before, "after_bytes": change.after
        })),
        "lines": difference.changed().map(line).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use makeroom_diff::{Line, Profile, compare};

    use super::*;
    use crate::wrap::plain;

    fn profile(bytes: u64, place: &str) -> Profile {
        Profile {
            peak_bytes: bytes + (100 << 20),
            kinds: [("activations".to_owned(), bytes), ("parameters".to_owned(), 100 << 20)].into(),
            lines: vec![Line {
                place: Some(place.to_owned()),
                kind: "activations".to_owned(),
                bytes,
                blocks: 4,
            }],
            ..Profile::default()
        }
    }

    #[test]
    fn the_sentence_names_the_line() {
        let (before, after) = (profile(10 << 20, "model.py:88 f"), profile(74 << 20, "model.py:88 f"));
        let difference = compare(&before, &after);
        assert_eq!(
            sentence(&difference),
            "The peak grew by 64.00 MiB: activations at model.py:88 f went from 10.00 MiB to 74.00 MiB."
        );
        let text = plain(&diff_text(&difference, 80, false));
        assert!(text.contains("PEAK GREW BY 58.2 %"), "{text}");
        assert!(text.contains("+64.00 MiB  grown   activations  model.py:88 f"), "{text}");
        assert_eq!(diff_json(&difference)["verdict"]["id"], "line");
    }

    #[test]
    fn a_line_that_moved_and_grew_has_both_numbers() {
        let (before, after) = (profile(10 << 20, "model.py:88 f"), profile(15 << 20, "model.py:91 f"));
        let text = plain(&diff_text(&compare(&before, &after), 80, false));
        assert!(text.contains("+5.00 MiB  grown   activations  model.py:91 f (was line 88)\n"), "{text}");
    }

    #[test]
    fn columns_have_two_spaces_between_them() {
        let lines = [Kind::OptimizerState, Kind::GraphPools].map(|kind| Line {
            place: Some("model.py:88 f".to_owned()),
            kind: kind.id().to_owned(),
            bytes: 1023 << 20,
            blocks: 1,
        });
        let after = Profile {
            peak_bytes: 2046 << 20,
            kinds: lines.iter().map(|line| (line.kind.clone(), line.bytes)).collect(),
            lines: lines.to_vec(),
            ..Profile::default()
        };
        let before = Profile { kinds: [("graph_pools".to_owned(), 1022 << 20)].into(), ..Profile::default() };
        let text = plain(&diff_text(&compare(&before, &after), 80, false));
        assert!(text.contains("    CUDA-graph pools  1022.00 MiB  1023.00 MiB     +1.00 MiB\n"), "{text}");
        assert!(text.contains("+1023.00 MiB  new     CUDA-graph pools  model.py:88 f\n"), "{text}");
        assert!(text.contains("+1023.00 MiB  new     optimizer state   model.py:88 f\n"), "{text}");
    }

    #[test]
    fn lines_that_moved_are_counted() {
        let text = |moved: usize| {
            let [before, after] = [0, 5].map(|by: usize| {
                let mut profile = profile(10 << 20, "model.py:99 f");
                profile.lines.extend((0..moved).map(|function| Line {
                    place: Some(format!("model.py:{} g{function}", 10 + by)),
                    kind: "parameters".to_owned(),
                    bytes: 1 << 20,
                    blocks: 1,
                }));
                profile
            });
            plain(&diff_text(&compare(&before, &after), 80, false))
        };
        assert!(text(1).contains("note: 1 line moved within a file and holds the same memory"));
        assert!(text(2).contains("note: 2 lines moved within a file and hold the same memory"));
    }

    #[test]
    fn kinds_that_differ_at_the_same_peak_are_told() {
        let peak = |kind: Kind| Profile {
            peak_bytes: 64 << 20,
            kinds: [(kind.id().to_owned(), 64 << 20)].into(),
            ..Profile::default()
        };
        let text = plain(&diff_text(&compare(&peak(Kind::Inputs), &peak(Kind::KvCache)), 80, false));
        assert!(text.contains("SAME PEAK, DIFFERENT KINDS\n"), "{text}");
        assert!(text.contains("Both peaks are 64.00 MiB, but the kinds of memory differ.\n"), "{text}");
    }
}
