//! Pairs of recordings with one deliberate change each (`traces/kinds`), and runs with other batches (`traces/fit`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use makeroom_diff::{Difference, KindChange, LineChange, LineStatus, Profile, Verdict, compare};
use makeroom_explain::line_of;
use makeroom_kind::Kind;
use makeroom_trace::Input;
use proptest::prelude::*;

fn profile(name: &str) -> Profile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(name);
    let Input::Trace(trace) = makeroom_trace::open(&path).unwrap() else { panic!("{name} is text") };
    Profile::new(&trace, trace.device(None).unwrap(), |stack| line_of(&trace, stack))
}

fn difference(before: &str, after: &str) -> Difference {
    let [before, after] = [before, after].map(|name| profile(&format!("kinds/{name}.pickle.gz")));
    compare(&before, &after)
}

fn growth(difference: &Difference, kind: Kind) -> i64 {
    difference.kinds.iter().find(|change| change.kind == kind).map_or(0, KindChange::growth)
}

#[test]
fn a_run_is_the_same_as_itself() {
    let difference = difference("adamw", "adamw");
    assert_eq!(difference.verdict, Verdict::Same);
    assert_eq!(difference.changed().count(), 0);
}

#[test]
fn twice_the_batch_is_recognized() {
    let difference = difference("adamw", "adamw-batch");
    let Verdict::OtherBatch(batch) = difference.verdict else { panic!("{:?}", difference.verdict) };
    assert!((batch.ratio - 2.0).abs() < 0.01, "{batch:?}");
    for kind in [Kind::Parameters, Kind::OptimizerState, Kind::Workspaces] {
        assert_eq!(growth(&difference, kind), 0, "{kind:?}");
    }
}

#[test]
fn attention_that_keeps_its_scores_is_named_by_its_line() {
    let difference = difference("adamw", "adamw-scores");
    let Verdict::Line(line) = &difference.verdict else { panic!("{:?}", difference.verdict) };
    assert_eq!((line.status, line.kind.as_str()), (LineStatus::New, "activations"));
    // The scores themselves. The next line, which multiplies them by `v`, replaced another one of the same size.
    assert_eq!(line.place.as_deref(), Some("kinds.py:32 forward"));
}

#[test]
fn a_comment_above_changes_nothing() {
    let before = profile("kinds/adamw.pickle.gz");
    let shifted = |by: u64| {
        let mut after = before.clone();
        for line in &mut after.lines {
            if let Some((file, number, rest)) = line.place.as_deref().and_then(|place| {
                let (position, function) = place.split_once(' ')?;
                let (file, number) = position.rsplit_once(':')?;
                Some((file, number.parse::<u64>().ok()?, function))
            }) {
                line.place = Some(format!("{file}:{} {rest}", number + by));
            }
        }
        after
    };
    for by in 1..6 {
        let difference = compare(&before, &shifted(by));
        assert_eq!((&difference.verdict, difference.changed().count()), (&Verdict::Same, 0), "{by}");
        // With another batch too.
        let mut after = shifted(by);
        let large = profile("kinds/adamw-batch.pickle.gz");
        after.lines.iter_mut().zip(&large.lines).for_each(|(line, other)| {
            (line.bytes, line.blocks) = (other.bytes, other.blocks);
        });
        let after = Profile { lines: after.lines, ..large };
        assert!(matches!(compare(&before, &after).verdict, Verdict::OtherBatch(_)), "{by}");
    }
}

#[test]
fn reserved_memory_is_no_less_than_live_memory() {
    for name in ["adamw.pickle.gz", "adamw.room.gz", "growing.room.gz", "checkpointing.room.gz"] {
        let profile = profile(&format!("kinds/{name}"));
        assert!(profile.reserved_bytes.unwrap() >= profile.peak_bytes, "{name}: {profile:?}");
    }
}

#[test]
fn another_optimizer_shows_as_its_state() {
    let difference = difference("adamw", "adamw-sgd");
    assert_eq!(growth(&difference, Kind::OptimizerState), -41_688_320);
    match &difference.verdict {
        Verdict::Line(line) => {
            assert_eq!((line.status, line.kind.as_str()), (LineStatus::Gone, "optimizer_state"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_leak_of_a_few_bytes_is_no_change() {
    assert_eq!(difference("adamw", "adamw-leak").verdict, Verdict::Same);
}

#[test]
fn checkpointing_saves_activations() {
    let difference = difference("checkpointing-off", "checkpointing");
    assert!(difference.growth() < -200_000_000);
    assert!(matches!(difference.verdict, Verdict::OneKind(Kind::Activations)), "{:?}", difference.verdict);
    assert!(growth(&difference, Kind::Activations) < -200_000_000);
}

#[test]
fn other_programs_are_told_by_what_they_need() {
    // LoRA trains few parameters, so it has little state; FSDP keeps its gathered parameters longer.
    let lora = difference("adamw", "lora");
    assert_eq!(lora.verdict, Verdict::OneKind(Kind::OptimizerState));
    assert!(growth(&lora, Kind::Gradients) < 0);
    // The same state, allocated on another line.
    let fsdp = difference("adamw", "fsdp");
    assert_eq!(growth(&fsdp, Kind::OptimizerState), 0);
    if let Verdict::Line(line) = &fsdp.verdict {
        assert_ne!(line.kind, "optimizer_state");
    }
    assert_eq!(difference("adamw", "compiled").verdict, Verdict::OneKind(Kind::Temporaries));
    // Recorded from the second step on, and with C++ frames: the same run.
    for same in ["adamw-late", "adamw-all"] {
        assert_eq!(difference("adamw", same).verdict, Verdict::Same, "{same}");
    }
    let Verdict::OtherBatch(batch) = difference("adamw-batch", "adamw").verdict else { panic!() };
    assert!((batch.ratio - 0.5).abs() < 0.01, "{batch:?}");
}

#[test]
fn batches_of_recordings_are_recognized() {
    for (small, large, ratio) in [("gpt_27", "gpt_54", 2.0), ("gpt_27", "gpt_61", 61.0 / 27.0)] {
        let [small, large] = [small, large].map(|name| profile(&format!("fit/{name}.room.gz")));
        let Verdict::OtherBatch(batch) = compare(&small, &large).verdict else { panic!() };
        assert!((batch.ratio - ratio).abs() < 0.02, "{batch:?}");
    }
}

#[test]
fn one_line_that_grew_without_the_inputs_is_not_another_batch() {
    let names = ["oom_fragmented", "oom_fragmented-expandable", "gpt2_varlen"];
    let [fixed, expandable, varlen] = names.map(|name| profile(&format!("{name}.pickle.gz")));
    for (before, after) in [(&fixed, &expandable), (&expandable, &fixed), (&varlen, &fixed)] {
        let difference = compare(before, after);
        assert_eq!(difference.batch, None);
        assert!(!matches!(difference.verdict, Verdict::OtherBatch(_)), "{:?}", difference.verdict);
    }
}

#[test]
fn a_line_that_others_cancel_is_not_named() {
    // One line takes the place of three: only the sum shrank.
    assert_eq!(difference("fsdp", "adamw").verdict, Verdict::OneKind(Kind::Parameters));
}

#[test]
fn a_line_in_both_runs_did_not_move() {
    let [before, after] =
        ["oom_fragmented", "oom_fragmented-expandable"].map(|name| profile(&format!("{name}.pickle.gz")));
    assert!(compare(&before, &after).lines.iter().all(|line| line.moved_from.is_none()));
}

#[test]
fn baselines_are_files_that_survive() {
    let profile = profile("kinds/adamw.pickle.gz");
    let text = serde_json::to_string_pretty(&profile).unwrap();
    assert!(text.len() < 20_000, "{}", text.len());
    assert_eq!(serde_json::from_str::<Profile>(&text).unwrap(), profile);
}

proptest! {
    #[test]
    fn changes_add_up(
        one in prop::collection::vec((0..5_u64, 0..4_usize, 0..1_u64 << 40), 0..30),
        two in prop::collection::vec((0..5_u64, 0..4_usize, 0..1_u64 << 40), 0..30),
    ) {
        let [one, two] = [one, two].map(|rows| {
            let mut profile = Profile::default();
            for (number, kind, bytes) in rows {
                let kind = Kind::ALL[kind].id().to_owned();
                let place = (number > 0).then(|| format!("model.py:{number} forward"));
                profile.peak_bytes += bytes;
                *profile.kinds.entry(kind.clone()).or_default() += bytes;
                if let Some(line) = profile.lines.iter_mut().find(|line| line.place == place && line.kind == kind) {
                    line.bytes += bytes;
                } else {
                    profile.lines.push(makeroom_diff::Line { place, kind, bytes, blocks: 1 });
                }
            }
            profile
        });
        let difference = compare(&one, &two);
        prop_assert_eq!(difference.kinds.iter().map(KindChange::growth).sum::<i64>(), difference.growth());
        prop_assert_eq!(difference.lines.iter().map(LineChange::growth).sum::<i64>(), difference.growth());
        let back = compare(&two, &one);
        prop_assert_eq!(back.growth(), -difference.growth());
    }
}
