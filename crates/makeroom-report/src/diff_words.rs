//! The difference of two runs in words: the title and the sentences of its verdict.

use makeroom_core::Bytes;
use makeroom_diff::{Difference, KindChange, LineChange, LineStatus, StepGrowth, Verdict};
use makeroom_explain::rate;
use makeroom_kind::Kind;

use crate::diff::size;
use crate::diff_notes::{Moment, moments};
use crate::kinds::kind_words;

/// The kind and the place of a line in a sentence.
pub(crate) fn memory(line: &LineChange) -> String {
    let kind = kind_in_sentence(&line.kind);
    match &line.place {
        Some(place) => format!("{kind} at {place}"),
        None => format!("{kind} with no stack recorded (backward pass, or a thread without Python)"),
    }
}

/// The name of a kind inside a sentence.
fn kind_in_sentence(kind: &str) -> &str {
    match Kind::from_id(kind) {
        Some(Kind::Unknown) => "memory of unknown kind",
        _ => kind_words(kind),
    }
}

/// The sentence that follows if live memory does not explain a failure.
const UNEXPLAINED: &str = " Live memory does not explain the failure. Fragmentation, a lower limit or other processes may be the cause: run makeroom why on the failed run.";

/// Whether both runs are compared at their peaks.
fn are_peaks(difference: &Difference) -> bool {
    moments(difference) == [Moment::Peak; 2]
}

/// How the live memory of both runs is compared: at peaks, or when an allocation failed.
fn lead(difference: &Difference) -> String {
    let growth = difference.growth();
    let amount = Bytes::new(growth.unsigned_abs());
    let (changed, side) = if growth < 0 { ("shrank", "below") } else { ("grew", "above") };
    match difference.failed_requests {
        (None, None) if !are_peaks(difference) => format!("Live memory {changed} by {amount}"),
        (None, None) => format!("The peak {changed} by {amount}"),
        (Some(_), Some(_)) => format!("Both runs failed; live memory at the failure {changed} by {amount}"),
        (None, Some(request)) => format!(
            "The later run failed when it requested {}, with live memory {amount} {side} the earlier run's peak",
            size(request)
        ),
        (Some(_), None) => {
            format!(
                "The earlier run failed; the later run's peak is {amount} {side} the live memory at that failure"
            )
        }
    }
}

/// The live memory of both runs if it is the same.
fn same(difference: &Difference) -> String {
    let after = size(difference.after);
    match difference.failed_requests {
        (None, None) if !are_peaks(difference) => format!("Both runs hold {after}"),
        (None, None) => format!("Both peaks are {after}"),
        (Some(_), Some(_)) => format!("Both runs failed with {after} live"),
        (None, Some(request)) => format!(
            "The later run failed when it requested {} with {after} live, as much as the earlier run's peak",
            size(request)
        ),
        (Some(_), None) => {
            format!("The earlier run failed with {after} live; the later run's peak is the same")
        }
    }
}

/// What to look at if the later run fails although the earlier one held as much.
fn unexplained(difference: &Difference) -> &'static str {
    match difference.failed_requests {
        (None, Some(request)) if difference.after.saturating_add(request) <= difference.before => UNEXPLAINED,
        (None, Some(_)) | (Some(_), None) if matches!(difference.verdict, Verdict::Same) => UNEXPLAINED,
        _ => "",
    }
}

/// A leak in one sentence.
pub fn leak_sentence(growth: &StepGrowth) -> String {
    let line = growth.lines.first().map_or(String::new(), |line| {
        let keeper = line.keeper.as_ref().map_or(String::new(), |keeper| format!(", kept by {keeper}"));
        let kind = kind_in_sentence(&line.kind);
        match &line.place {
            Some(place) => format!(": {kind} allocated at {place}{keeper}"),
            None => format!(": {kind} with no stack recorded"),
        }
    });
    format!("Live memory grows by {}, over {} steps{line}.", growth_rate(growth), growth.steps)
}

pub(crate) fn growth_rate(growth: &StepGrowth) -> String {
    rate(Bytes::new(growth.bytes), usize::try_from(growth.steps).unwrap_or(usize::MAX))
}

/// The difference in one sentence, and a second one if live memory does not explain a failure.
pub(crate) fn sentence(difference: &Difference) -> String {
    format!("{}{}", cause(difference), unexplained(difference))
}

fn cause(difference: &Difference) -> String {
    let lead = lead(difference);
    match &difference.verdict {
        Verdict::Same => format!("{}.", same(difference)),
        Verdict::Shifted => format!("{}, but the kinds of memory differ.", same(difference)),
        Verdict::Leak(growth) => {
            let peaks = if difference.growth() == 0 { same(difference) } else { lead };
            format!("The later run leaks. {} {peaks}.", leak_sentence(growth))
        }
        Verdict::LeakInBoth(growth) => {
            let before = difference.step_growth.0.as_ref().map_or(0, |growth| growth.steps);
            format!(
                "Both runs leak at about the same rate. {} {lead}, over {} steps instead of {before}.",
                leak_sentence(growth),
                growth.steps
            )
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
            let name = kind_in_sentence(kind.id());
            let rest = difference.growth() - change.map_or(0, KindChange::growth);
            format!(
                "{lead}: {name} went from {} to {}{}.",
                size(before),
                size(after),
                others(rest, difference)
            )
        }
        Verdict::Several => format!("{lead}, in several kinds of memory."),
    }
}

/// The growth of the other kinds, if it is a considerable part of the change.
fn others(rest: i64, difference: &Difference) -> String {
    let growth = difference.growth();
    let is_considerable =
        rest.signum() == growth.signum() && rest.unsigned_abs() >= growth.unsigned_abs() / 10;
    let changed = if growth < 0 { "shrank" } else { "grew" };
    if is_considerable && rest != 0 {
        format!(", and other kinds {changed} by {}", size(rest.unsigned_abs()))
    } else {
        String::new()
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
        LineStatus::New => format!("{memory} {} new ({after})", is_or_are(&line.kind)),
        LineStatus::Gone => format!("{memory} {} gone ({before} before)", is_or_are(&line.kind)),
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

pub(crate) fn title(difference: &Difference) -> String {
    let growth = difference.growth();
    let share = 100.0 * growth as f64 / difference.before.max(1) as f64;
    let is_same = matches!(difference.verdict, Verdict::Same | Verdict::Shifted);
    let kinds = if matches!(difference.verdict, Verdict::Shifted) { ", DIFFERENT KINDS" } else { "" };
    let side = if growth < 0 { "BELOW" } else { "ABOVE" };
    let changed = if growth < 0 { "SHRANK" } else { "GREW" };
    let amount = share.abs();
    let peak = if are_peaks(difference) { "PEAK" } else { "LIVE MEMORY" };
    match (difference.failed_requests, &difference.verdict) {
        (_, Verdict::Leak(leak)) => format!("LEAK ({})", growth_rate(leak)),
        ((None, None), _) if is_same => format!("SAME {peak}{kinds}"),
        ((None, None), _) => format!("{peak} {changed} BY {amount:.1} %"),
        ((Some(_), Some(_)), _) if is_same => format!("BOTH RUNS FAILED, SAME LIVE MEMORY{kinds}"),
        ((Some(_), Some(_)), _) => format!("BOTH RUNS FAILED, LIVE MEMORY {changed} BY {amount:.1} %"),
        ((None, Some(_)), _) if is_same => format!("THE LATER RUN FAILED AT THE EARLIER PEAK{kinds}"),
        ((None, Some(_)), _) => format!("THE LATER RUN FAILED {amount:.1} % {side} THE EARLIER PEAK"),
        ((Some(_), None), _) if is_same => format!("THE LATER RUN DID NOT FAIL, SAME LIVE MEMORY{kinds}"),
        ((Some(_), None), _) => {
            format!(
                "THE LATER RUN DID NOT FAIL, PEAK {amount:.1} % {side} LIVE MEMORY AT THE EARLIER FAILURE"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use makeroom_diff::{GrowingLine, Profile, compare};

    use super::*;

    #[test]
    fn moments_are_named() {
        let run = |peak_bytes: u64, failed: Option<u64>| Profile {
            peak_bytes: peak_bytes << 20,
            failed_request_bytes: failed.map(|mib| mib << 20),
            kinds: [("activations".to_owned(), peak_bytes << 20)].into(),
            ..Profile::default()
        };
        let told = |before: &Profile, after: &Profile| {
            let difference = compare(before, after);
            (title(&difference), sentence(&difference))
        };
        let (fits, fails) = (run(100, None), run(110, Some(20)));
        assert_eq!(
            told(&fits, &fails),
            (
                "THE LATER RUN FAILED 10.0 % ABOVE THE EARLIER PEAK".to_owned(),
                "The later run failed when it requested 20.00 MiB, with live memory 10.00 MiB above the earlier run's peak: activations went from 100.00 MiB to 110.00 MiB.".to_owned(),
            )
        );
        assert_eq!(
            told(&fails, &fits).0,
            "THE LATER RUN DID NOT FAIL, PEAK 9.1 % BELOW LIVE MEMORY AT THE EARLIER FAILURE"
        );
        assert_eq!(told(&fails, &run(121, Some(20))).0, "BOTH RUNS FAILED, LIVE MEMORY GREW BY 10.0 %");
        let (name, cause) = told(&fits, &run(100, Some(20)));
        assert_eq!(name, "THE LATER RUN FAILED AT THE EARLIER PEAK");
        assert!(cause.ends_with("run makeroom why on the failed run."), "{cause}");
        // The earlier run held more than the later one needed.
        assert!(told(&fits, &run(60, Some(20))).1.contains("Live memory does not explain the failure"));
    }

    #[test]
    fn a_leak_has_a_rate_a_line_and_a_keeper() {
        let line = |keeper: Option<&str>| GrowingLine {
            place: Some("model.py:69 Gpt.forward".to_owned()),
            kind: "activations".to_owned(),
            bytes: 21 << 20,
            keeper: keeper.map(str::to_owned),
        };
        let growth = |steps, lines| StepGrowth { steps, bytes: 21 << 20, lines, ..StepGrowth::default() };
        assert_eq!(
            leak_sentence(&growth(21, vec![line(Some("the module Gpt"))])),
            "Live memory grows by 1.00 MiB per step, over 21 steps: activations allocated at model.py:69 Gpt.forward, kept by the module Gpt."
        );
        assert_eq!(
            leak_sentence(&growth(210_000, Vec::new())),
            "Live memory grows by 102.40 KiB per 1000 steps, over 210000 steps."
        );
        let run = |steps: Option<u64>| Profile {
            peak_bytes: steps.unwrap_or(1) << 20,
            growth: steps.map(|steps| StepGrowth {
                steps,
                bytes: steps << 20,
                lines: vec![line(None)],
                ..StepGrowth::default()
            }),
            ..Profile::default()
        };
        let told = |before, after| sentence(&compare(&run(before), &run(after)));
        assert!(
            told(None, Some(21)).starts_with("The later run leaks. Live memory grows by 1.00 MiB per step")
        );
        assert!(told(Some(21), Some(60)).ends_with("grew by 39.00 MiB, over 60 steps instead of 21."));
    }

    #[test]
    fn other_kinds_are_named_if_they_matter() {
        let run = |activations: u64, state: u64| Profile {
            peak_bytes: (activations + state) << 20,
            kinds: [
                ("activations".to_owned(), activations << 20),
                ("optimizer_state".to_owned(), state << 20),
            ]
            .into(),
            ..Profile::default()
        };
        let told = |after: &Profile| sentence(&compare(&run(300, 100), after));
        let most = "The peak grew by 64.00 MiB: activations went from 300.00 MiB to 364.00 MiB.";
        assert_eq!(told(&run(364, 100)), most);
        assert_eq!(
            told(&run(364, 148)),
            "The peak grew by 112.00 MiB: activations went from 300.00 MiB to 364.00 MiB, and other kinds grew by 48.00 MiB."
        );
        assert!(told(&run(364, 104)).ends_with("to 364.00 MiB."));
        assert!(told(&run(200, 50)).ends_with("to 200.00 MiB, and other kinds shrank by 50.00 MiB."));
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
        assert_eq!(line_sentence(&line(Kind::KvCache)), "KV cache at model.py:7 f is new (1.00 MiB)");
        assert_eq!(line_sentence(&line(Kind::Gradients)), "gradients at model.py:7 f are new (1.00 MiB)");
        let unstacked = LineChange { place: None, ..line(Kind::Temporaries) };
        assert_eq!(
            line_sentence(&unstacked),
            "temporaries with no stack recorded (backward pass, or a thread without Python) are new (1.00 MiB)"
        );
    }

    #[test]
    fn ratios_have_no_needless_digits() {
        assert_eq!([2.0, 0.75, 1.333].map(|ratio| Ratio(ratio).to_string()), ["2", "0.75", "1.33"]);
    }
}
