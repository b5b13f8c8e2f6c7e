//! The difference between two runs and its main cause.

use makeroom_kind::Kind;

use crate::batch::{self, BatchRatio};
use crate::lines::{self, LineChange, LineStatus, signed};
use crate::profile::{Profile, Source, StepGrowth};

/// Changes of at most this share of the peak are noise: allocators and libraries round.
const NOISE_SHARE: f64 = 0.0005;
/// And changes of at most this many bytes.
const NOISE_BYTES: u64 = 4096;
/// A kind that makes up this share of a change is its cause.
const KIND_SHARE: f64 = 0.5;
/// A line that makes up this share of a change is its cause.
const LINE_SHARE: f64 = 0.7;
/// Other lines cancel the growth of a line that grew by more than this multiple of its kind.
const MOST_OF_KIND: f64 = 1.25;

/// A leak changed if it is at least this many times as fast.
const OTHER_RATE: f64 = 1.5;

/// The difference of two peaks, or of live memory when an allocation failed.
///
/// Σ `kinds` growth = `after.peak_bytes` − `before.peak_bytes`.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The peak before.
    pub before: u64,
    /// The peak now.
    pub after: u64,
    /// Peak reserved memory before and now.
    pub reserved: (Option<u64>, Option<u64>),
    /// All kinds of both runs, in the order of reports.
    pub kinds: Vec<KindChange>,
    /// All lines of both runs, the largest change first.
    pub lines: Vec<LineChange>,
    /// The requests that failed: a run with one is compared at that moment, the other at its peak.
    pub failed_requests: (Option<u64>, Option<u64>),
    /// What recorded the runs, as far as it is known.
    pub sources: (Option<Source>, Option<Source>),
    /// The most memory outside of a framework's allocator, if it is left out because the other recorder does not see it.
    pub left_out: (Option<u64>, Option<u64>),
    /// Whether a recording has no history, so that the memory when it was written is compared.
    pub without_history: (bool, bool),
    /// Whether an allocation failed in a run, so that its peak is not complete.
    pub incomplete: (bool, bool),
    /// Growth from step to step before and now.
    pub step_growth: (Option<StepGrowth>, Option<StepGrowth>),
    /// Another batch size, if that is what differs.
    pub batch: Option<BatchRatio>,
    /// What to say in one sentence.
    pub verdict: Verdict,
}

/// A kind of memory in both runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindChange {
    /// The kind.
    pub kind: Kind,
    /// Bytes before.
    pub before: u64,
    /// Bytes now.
    pub after: u64,
}

impl KindChange {
    /// How much it grew; negative if it shrank.
    pub fn growth(&self) -> i64 {
        signed(self.after).saturating_sub(signed(self.before))
    }
}

/// The main point of a difference.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The peaks are the same, and so are their kinds.
    Same,
    /// The peaks are the same, but memory moved between kinds.
    Shifted,
    /// The run leaks: live memory grows from step to step, which it did not do before, or more slowly.
    Leak(StepGrowth),
    /// Both runs leak at about the same rate.
    LeakInBoth(StepGrowth),
    /// The batch has another size; the rest is the same.
    OtherBatch(BatchRatio),
    /// Most of the change is one line.
    Line(Box<LineChange>),
    /// Most of the change is one kind, on several lines.
    OneKind(Kind),
    /// Several kinds changed.
    Several,
}

impl Difference {
    /// How much the peak grew; negative if it shrank.
    pub fn growth(&self) -> i64 {
        signed(self.after).saturating_sub(signed(self.before))
    }

    /// Whether different programs recorded the runs: they do not see the same memory.
    pub fn is_mixed(&self) -> bool {
        matches!(self.sources, (Some(before), Some(after)) if before != after)
    }

    /// The line of code that the verdict names.
    pub fn named_place(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::Line(line) => line.place.as_deref(),
            Verdict::Leak(growth) | Verdict::LeakInBoth(growth) => growth.lines.first()?.place.as_deref(),
            _ => None,
        }
    }

    /// The line of code that grew most, of the kind that the verdict names if it names one.
    pub fn most_grown(&self) -> Option<&LineChange> {
        let is_of_kind = |line: &LineChange| match self.verdict {
            Verdict::OneKind(kind) => line.kind == kind.id(),
            _ => true,
        };
        let is_grown = |line: &LineChange| matches!(line.status, LineStatus::Grown | LineStatus::New);
        self.changed().find(|line| is_grown(line) && line.place.is_some() && is_of_kind(line))
    }

    /// Lines that changed.
    pub fn changed(&self) -> impl Iterator<Item = &LineChange> {
        self.lines.iter().filter(|line| line.status != LineStatus::Same)
    }

    /// Lines that moved and hold the same.
    pub fn moved(&self) -> impl Iterator<Item = &LineChange> {
        self.lines.iter().filter(|line| line.status == LineStatus::Same && line.moved_from.is_some())
    }
}

/// Compares two runs.
pub fn compare(before: &Profile, after: &Profile) -> Difference {
    let largest = before.peak_bytes.max(after.peak_bytes);
    let noise = NOISE_BYTES.max((largest as f64 * NOISE_SHARE) as u64);
    let lines = lines::changes(before, after, noise);
    let kinds: Vec<KindChange> = Kind::ALL
        .into_iter()
        .map(|kind| KindChange { kind, before: before.of_kind(kind.id()), after: after.of_kind(kind.id()) })
        .filter(|change| change.before > 0 || change.after > 0)
        .collect();
    let batch = batch::find(before, after, &lines);
    let mut difference = Difference {
        before: before.peak_bytes,
        after: after.peak_bytes,
        reserved: (before.reserved_bytes, after.reserved_bytes),
        kinds,
        lines,
        failed_requests: (before.failed_request_bytes, after.failed_request_bytes),
        sources: (before.source, after.source),
        left_out: (before.left_out_bytes, after.left_out_bytes),
        without_history: (before.is_without_history, after.is_without_history),
        incomplete: (before.is_incomplete, after.is_incomplete),
        step_growth: (before.growth.clone(), after.growth.clone()),
        batch,
        verdict: Verdict::Same,
    };
    difference.verdict = verdict(&difference, noise);
    difference
}

/// Whether a leak is faster than another one. Rates are comparable only if the same marks delimit the steps.
fn is_faster(before: &StepGrowth, after: &StepGrowth) -> bool {
    are_comparable(before, after) && after.per_step() >= OTHER_RATE * before.per_step()
}

fn is_about_as_fast(before: &StepGrowth, after: &StepGrowth) -> bool {
    are_comparable(before, after) && !is_faster(before, after) && !is_faster(after, before)
}

fn are_comparable(before: &StepGrowth, after: &StepGrowth) -> bool {
    before.measured_by == after.measured_by
}

fn verdict(difference: &Difference, noise: u64) -> Verdict {
    let growth = difference.growth();
    match &difference.step_growth {
        (before, Some(after)) if before.as_ref().is_none_or(|before| is_faster(before, after)) => {
            return Verdict::Leak(after.clone());
        }
        (Some(before), Some(after)) if is_about_as_fast(before, after) && growth.unsigned_abs() > noise => {
            return Verdict::LeakInBoth(after.clone());
        }
        _ => {}
    }
    if let Some(batch) = difference.batch {
        return Verdict::OtherBatch(batch);
    }
    if growth.unsigned_abs() <= noise {
        let is_shifted = difference.kinds.iter().any(|kind| kind.growth().unsigned_abs() > noise);
        return if is_shifted { Verdict::Shifted } else { Verdict::Same };
    }
    let is_share = |part: i64, whole: i64, least: f64, most: f64| {
        let share = part as f64 / whole as f64;
        whole != 0 && (least..=most).contains(&share)
    };
    let is_cause = |kind: &&KindChange| is_share(kind.growth(), growth, KIND_SHARE, f64::INFINITY);
    let kind = difference.kinds.iter().filter(is_cause).max_by_key(|kind| kind.growth().unsigned_abs());
    // Lines that took each other's place cancel, so a line must also explain the change of its kind, and be the only
    // one that does.
    let explains = |line: &&LineChange| {
        let kind = difference.kinds.iter().filter(is_cause).find(|kind| kind.kind.id() == line.kind);
        is_share(line.growth(), growth, LINE_SHARE, f64::INFINITY)
            && kind.is_some_and(|kind| is_share(line.growth(), kind.growth(), 0.0, MOST_OF_KIND))
    };
    let mut lines = difference.lines.iter().filter(explains);
    match (lines.next(), lines.next(), kind) {
        (Some(line), None, _) if line.place.is_some() => Verdict::Line(Box::new(line.clone())),
        (_, _, Some(kind)) => Verdict::OneKind(kind.kind),
        _ => Verdict::Several,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Line;

    fn profile(lines: &[(Kind, &str, u64)]) -> Profile {
        let mut profile = Profile::default();
        for &(kind, place, bytes) in lines {
            profile.peak_bytes += bytes;
            *profile.kinds.entry(kind.id().to_owned()).or_default() += bytes;
            let (kind, place) = (kind.id().to_owned(), Some(place.to_owned()));
            profile.lines.push(Line { place, kind, bytes, blocks: 1 });
        }
        profile
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_cause_of_a_change_is_a_line_a_kind_or_several() {
        let base = profile(&[
            (Kind::Parameters, "model.py:3 __init__", 100 * MIB),
            (Kind::Activations, "model.py:8 forward", 200 * MIB),
            (Kind::Activations, "model.py:9 forward", 100 * MIB),
        ]);
        let mut scores = base.clone();
        let added = profile(&[(Kind::Activations, "model.py:88 attention", 50 * MIB)]);
        scores.peak_bytes += added.peak_bytes;
        *scores.kinds.get_mut("activations").unwrap() += added.peak_bytes;
        scores.lines.extend(added.lines);
        let difference = compare(&base, &scores);
        assert_eq!(difference.growth(), 50 * MIB.cast_signed());
        let Verdict::Line(line) = difference.verdict else { panic!("{:?}", difference.verdict) };
        assert_eq!((line.status, line.place.as_deref()), (LineStatus::New, Some("model.py:88 attention")));
        assert_eq!(compare(&base, &base).verdict, Verdict::Same);
        let other = profile(&[
            (Kind::Parameters, "model.py:3 __init__", 200 * MIB),
            (Kind::Activations, "model.py:8 forward", 100 * MIB),
            (Kind::Activations, "model.py:9 forward", 100 * MIB),
        ]);
        assert_eq!(compare(&base, &other).verdict, Verdict::Shifted);
        let state = profile(&[
            (Kind::Parameters, "model.py:3 __init__", 100 * MIB),
            (Kind::Activations, "model.py:8 forward", 200 * MIB),
            (Kind::Activations, "model.py:9 forward", 100 * MIB),
            (Kind::OptimizerState, "train.py:1 f", 40 * MIB),
            (Kind::OptimizerState, "train.py:2 g", 40 * MIB),
            (Kind::OptimizerState, "train.py:3 h", 40 * MIB),
        ]);
        assert_eq!(compare(&base, &state).verdict, Verdict::OneKind(Kind::OptimizerState));
    }

    #[test]
    fn a_line_that_only_moved_is_not_the_cause() {
        let lines = |parameters: &'static str, more: u64| {
            profile(&[
                (Kind::Parameters, parameters, 500 * MIB),
                (Kind::Activations, "model.py:8 forward", 100 * MIB),
                (Kind::Activations, "model.py:9 forward", (100 + more) * MIB),
                (Kind::Activations, "model.py:10 forward", (10 + more) * MIB),
            ])
        };
        let difference = compare(&lines("train.py:1 load", 0), &lines("setup.py:7 build", 4));
        assert_eq!(difference.lines[0].growth().unsigned_abs(), 500 * MIB);
        assert_eq!(difference.verdict, Verdict::OneKind(Kind::Activations));
    }

    #[test]
    fn lines_that_cancel_are_not_the_cause() {
        let base = profile(&[
            (Kind::Parameters, "train.py:1 load", 20 * MIB),
            (Kind::Activations, "model.py:8 forward", 12 * MIB),
        ]);
        // One line took the place of three.
        let parameters = |rows: &[(Kind, &str, u64)]| {
            profile(&[rows, &[(Kind::Activations, "model.py:8 forward", 12 * MIB)]].concat())
        };
        let sharded = parameters(&[
            (Kind::Parameters, "fsdp.py:7 shard", 12 * MIB),
            (Kind::Parameters, "fsdp.py:8 gather", 8 * MIB),
            (Kind::Parameters, "fsdp.py:9 prefetch", 8 * MIB),
        ]);
        assert_eq!(compare(&sharded, &base).verdict, Verdict::OneKind(Kind::Parameters));
        // Of several lines, one explains the sum.
        let scores = profile(&[
            (Kind::Parameters, "train.py:1 load", 20 * MIB),
            (Kind::Activations, "model.py:20 scores", 8 * MIB),
            (Kind::Activations, "model.py:21 attention", 12 * MIB),
        ]);
        let Verdict::Line(line) = compare(&base, &scores).verdict else { panic!() };
        assert_eq!(line.place.as_deref(), Some("model.py:20 scores"));
    }

    #[test]
    fn a_leak_is_the_cause_if_it_is_new_or_faster() {
        let run = |activations: u64, leak: Option<(u64, u64)>| Profile {
            growth: leak.map(|(steps, bytes)| StepGrowth { steps, bytes, ..StepGrowth::default() }),
            ..profile(&[
                (Kind::Parameters, "train.py:1 load", 100 * MIB),
                (Kind::Activations, "model.py:8 forward", activations * MIB),
            ])
        };
        let verdict = |before: &Profile, after: &Profile| compare(before, after).verdict;
        let (plain, leaking) = (run(10, None), run(40, Some((30, 30 * MIB))));
        assert!(matches!(verdict(&plain, &leaking), Verdict::Leak(growth) if growth.steps == 30));
        // The same leak over more steps, and a faster one.
        assert!(matches!(verdict(&leaking, &run(70, Some((60, 60 * MIB)))), Verdict::LeakInBoth(_)));
        assert!(matches!(verdict(&leaking, &run(70, Some((30, 60 * MIB)))), Verdict::Leak(_)));
        assert_eq!(verdict(&leaking, &leaking), Verdict::Same);
        // Without it, or with a slower one, the line that holds less is the cause.
        assert!(matches!(verdict(&leaking, &plain), Verdict::Line(_)));
        assert!(matches!(verdict(&leaking, &run(20, Some((30, 10 * MIB)))), Verdict::Line(_)));
    }

    #[test]
    fn rates_are_compared_only_if_the_same_marks_delimit_steps() {
        let run = |activations: u64, rate: u64, mark: &str| Profile {
            growth: Some(StepGrowth {
                steps: 30,
                measured_by: mark.to_owned(),
                bytes: 30 * rate * MIB,
                lines: Vec::new(),
            }),
            ..profile(&[
                (Kind::Parameters, "train.py:1 load", 100 * MIB),
                (Kind::Activations, "model.py:8 forward", activations * MIB),
            ])
        };
        let before = run(40, 1, "Optimizer.step");
        let verdict = |rate, mark| compare(&before, &run(70, rate, mark)).verdict;
        assert!(matches!(verdict(1, "Optimizer.step"), Verdict::LeakInBoth(_)));
        assert!(matches!(verdict(4, "Optimizer.step"), Verdict::Leak(_)));
        // With gradient accumulation, a step has several backward passes.
        for rate in [1, 4] {
            assert!(matches!(verdict(rate, "backward pass"), Verdict::Line(_)), "{rate}");
        }
    }

    #[test]
    fn a_baseline_without_marks_is_read() {
        let growth: StepGrowth = serde_json::from_str(r#"{"steps": 3, "bytes": 6, "lines": []}"#).unwrap();
        assert_eq!((growth.measured_by.as_str(), growth.bytes), ("", 6));
    }

    #[test]
    fn kinds_add_up_to_the_change_of_the_peak() {
        let one = profile(&[(Kind::Parameters, "a.py:1 f", 10 * MIB), (Kind::Inputs, "a.py:2 f", MIB)]);
        let two = profile(&[(Kind::Parameters, "a.py:1 f", 12 * MIB), (Kind::Unknown, "a.py:9 f", 3 * MIB)]);
        let difference = compare(&one, &two);
        assert_eq!(difference.kinds.iter().map(KindChange::growth).sum::<i64>(), difference.growth());
        assert_eq!(difference.lines.iter().map(LineChange::growth).sum::<i64>(), difference.growth());
    }
}
