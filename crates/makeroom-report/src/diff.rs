//! The difference of two runs as one screen of text, as one sentence, and as JSON.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use makeroom_core::Bytes;
use makeroom_diff::{Difference, LineChange, LineStatus, Verdict};
use makeroom_kind::Kind;
use serde_json::{Value, json};

use crate::kinds::{kind_name, kind_words};
use crate::text::{DIM, LEAST_COLUMNS, MARGIN, TITLE};
use crate::wrap::{clip_place, wrap};

/// Lines of code that are shown without `--verbose`.
const MOST_LINES: usize = 10;

/// A size with its sign.
pub(crate) fn signed(growth: i64) -> String {
    let sign = if growth < 0 { "−" } else { "+" };
    format!("{sign}{}", Bytes::new(growth.unsigned_abs()))
}

fn size(bytes: u64) -> String {
    Bytes::new(bytes).to_string()
}

/// The place of a line in a table.
pub(crate) fn place(line: &LineChange) -> &str {
    line.place.as_deref().unwrap_or("no stack recorded (backward pass, or a thread without Python)")
}

/// The kind and the place of a line in a sentence.
fn memory(line: &LineChange) -> String {
    let kind = kind_words(&line.kind);
    match &line.place {
        Some(place) => format!("{kind} at {place}"),
        None => format!("{kind} without a stack (backward pass, or a thread without Python)"),
    }
}

/// The difference in one sentence.
pub(crate) fn sentence(difference: &Difference) -> String {
    let growth = difference.growth();
    let amount = Bytes::new(growth.unsigned_abs());
    let changed = if growth < 0 { "shrank" } else { "grew" };
    let lead = format!("The peak {changed} by {amount}");
    match &difference.verdict {
        Verdict::Same => format!("Both peaks are {}.", size(difference.after)),
        Verdict::Shifted => {
            format!("Both peaks are {}, but the kinds of memory differ.", size(difference.after))
        }
        Verdict::OtherBatch(batch) => format!(
            "{lead}: the batch is {} times as large, and {:.0} % of activations and inputs scale with it.",
            Ratio(batch.ratio),
            100.0 * batch.share
        ),
        Verdict::Line(line) => format!("{lead}: {}.", line_sentence(line)),
        Verdict::OneKind(kind) => {
            let change = difference.kinds.iter().find(|change| change.kind == *kind);
            let (before, after) = change.map_or((0, 0), |change| (change.before, change.after));
            format!("{lead}: {} went from {} to {}.", kind_name(*kind), size(before), size(after))
        }
        Verdict::Several => format!("{lead}, in several kinds of memory."),
    }
}

/// A ratio without needless digits.
struct Ratio(f64);

impl std::fmt::Display for Ratio {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rounded = format!("{:.2}", self.0);
        formatter.write_str(rounded.trim_end_matches('0').trim_end_matches('.'))
    }
}

fn line_sentence(line: &LineChange) -> String {
    let (memory, before, after) = (memory(line), size(line.before), size(line.after));
    match line.status {
        LineStatus::New => format!("{memory} {} new, {after}", is_or_are(&line.kind)),
        LineStatus::Gone => format!("{memory} {} gone, {before}", is_or_are(&line.kind)),
        LineStatus::Grown | LineStatus::Shrunk | LineStatus::Same => {
            format!("{memory} went from {before} to {after}")
        }
    }
}

/// The verb after the name of a kind.
fn is_or_are(kind: &str) -> &'static str {
    match Kind::from_id(kind) {
        Some(Kind::OptimizerState | Kind::KvCache | Kind::FrameworkCache | Kind::Unknown) | None => "is",
        Some(_) => "are",
    }
}

fn title(difference: &Difference) -> String {
    let growth = difference.growth();
    let share = 100.0 * growth as f64 / difference.before.max(1) as f64;
    match difference.verdict {
        Verdict::Same => "SAME PEAK".to_owned(),
        Verdict::Shifted => "SAME PEAK, DIFFERENT KINDS".to_owned(),
        _ if growth < 0 => format!("PEAK SHRANK BY {:.1} %", -share),
        _ => format!("PEAK GREW BY {share:.1} %"),
    }
}

/// The difference for a terminal of `columns` columns.
pub fn diff_text(difference: &Difference, columns: usize, is_verbose: bool) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let mut out = String::new();
    let color = match difference.verdict {
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
    let moved = difference.moved().count();
    if moved > 0 {
        let (lines, hold) = if moved == 1 { ("line", "holds") } else { ("lines", "hold") };
        let _ = writeln!(
            out,
            "{MARGIN}{DIM}note: {moved} {lines} moved within a file and {hold} the same memory{DIM:#}"
        );
    }
    out
}

fn kinds(out: &mut String, difference: &Difference) {
    let _ = writeln!(
        out,
        "\n{MARGIN}{TITLE}{:<18}{:>13}{:>13}{:>14}{TITLE:#}",
        "Peak by kind", "before", "after", "change"
    );
    let mut row = |name: &str, before: u64, after: u64| {
        let growth = Bytes::new(after).difference(Bytes::new(before));
        let change = if growth == 0 { String::new() } else { signed(growth) };
        let row = format!("{MARGIN}  {name:<16}{:>13}{:>13}{change:>14}", size(before), size(after));
        let _ = writeln!(out, "{}", row.trim_end());
    };
    for kind in &difference.kinds {
        row(kind_name(kind.kind), kind.before, kind.after);
    }
    row("all", difference.before, difference.after);
    if let (Some(before), Some(after)) = difference.reserved {
        row("peak reserved", before, after);
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
        let moved = line.moved_from.as_ref().map_or(String::new(), |from| format!(" (was {from})"));
        let place = clip_place(&format!("{}{moved}", place(line)), columns.saturating_sub(28 + width));
        let (growth, kind) = (signed(line.growth()), kind_words(&line.kind));
        let _ = writeln!(out, "{MARGIN}  {growth:>12}  {status:<6}  {kind:<width$}  {place}");
    }
    if changed.len() > most {
        let _ = writeln!(out, "{MARGIN}  {DIM}and {} more (--verbose){DIM:#}", changed.len() - most);
    }
}

/// The difference as JSON.
pub fn diff_json(difference: &Difference) -> Value {
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
        "before_reserved_bytes": difference.reserved.0,
        "after_reserved_bytes": difference.reserved.1,
        "batch_ratio": difference.batch.map(|batch| batch.ratio),
        "kinds": difference.kinds.iter().map(|change| json!({
            "kind": Kind::id(change.kind), "before_bytes": change.before, "after_bytes": change.after
        })).collect::<Vec<_>>(),
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

    #[test]
    fn kinds_are_singular_or_plural() {
        let line = |kind: Kind| LineChange {
            status: LineStatus::New,
            kind: kind.id().to_owned(),
            place: Some("model.py:7 f".to_owned()),
            moved_from: None,
            before: 0,
            after: 1 << 20,
            blocks: (0, 1),
        };
        assert_eq!(line_sentence(&line(Kind::KvCache)), "KV cache at model.py:7 f is new, 1.00 MiB");
        assert_eq!(line_sentence(&line(Kind::Gradients)), "gradients at model.py:7 f are new, 1.00 MiB");
        let unstacked = LineChange { place: None, ..line(Kind::Temporaries) };
        assert_eq!(
            line_sentence(&unstacked),
            "temporaries without a stack (backward pass, or a thread without Python) are new, 1.00 MiB"
        );
    }

    #[test]
    fn ratios_have_no_needless_digits() {
        assert_eq!([2.0, 0.75, 1.333].map(|ratio| Ratio(ratio).to_string()), ["2", "0.75", "1.33"]);
    }
}
