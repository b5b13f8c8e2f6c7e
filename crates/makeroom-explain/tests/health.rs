//! The word for each recorded run, whether its memory grew, the limit that a snapshot does not contain, and the step that
//! belongs to the verdict.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;

use makeroom_core::Bytes;
use makeroom_explain::{Cause, Explanation, HealthState, Room, TraceQuestion, explain_trace};
use makeroom_trace::Input;

fn explain_in(name: &str, room: Room) -> Explanation {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(name);
    let Input::Trace(trace) = makeroom_trace::open(&path).unwrap() else { panic!() };
    explain_trace(&trace, &TraceQuestion { room, device: None })
}

fn explain(name: &str) -> Explanation {
    explain_in(name, Room::Unknown)
}

#[test]
fn every_run_has_a_word_with_the_figure_that_decides() {
    for (name, state, figure) in [
        (
            "gpt2_varlen.pickle.gz",
            HealthState::Wasteful,
            "9.59 GiB (40 %) of the 23.94 GiB reserved at the peak is cached; 14.33 GiB is live",
        ),
        (
            "streams.pickle.gz",
            HealthState::Wasteful,
            "312.86 MiB of the 520.00 MiB reserved was freed but still waits",
        ),
        (
            // Too short to show a leak.
            "kinds/adamw.pickle.gz",
            HealthState::Unknown,
            "at the peak, 241.57 MiB was live and 266.00 MiB reserved",
        ),
        (
            "kinds/adamw-features.room.gz",
            HealthState::Growing,
            "grew from 261.37 MiB to 282.37 MiB over 21 steps",
        ),
    ] {
        let health = explain(name).health();
        assert_eq!(health.state, state, "{name}: {health:?}");
        assert!(health.because.as_ref().unwrap().contains(figure), "{name}: {health:?}");
    }
    for (name, state) in [
        ("oom_batch.pickle.gz", HealthState::Failed),
        ("fit/gpt_61.room.gz", HealthState::Failed),
        ("jax_memory.prof.gz", HealthState::Unknown),
    ] {
        let health = explain(name).health();
        assert_eq!((health.state, health.because), (state, None), "{name}");
    }
}

#[test]
fn whether_memory_grew_is_said_for_every_history() {
    for (name, sentence) in [
        (
            "gpt2_varlen.pickle.gz",
            "Live memory did not grow from step 15 to step 59; 1.14 GiB stays live after each step.",
        ),
        (
            "oom_fragmented.pickle.gz",
            "Live memory did not grow from step 2 to step 3; 1.14 GiB stays live after each step.",
        ),
        ("fit/gpt_61.room.gz", "Live memory went up and down, without steady growth."),
        ("kinds/adamw.pickle.gz", "The recording is too short to show whether memory grows."),
    ] {
        let explanation = explain(name);
        assert!(explanation.growth.is_none());
        assert_eq!(explanation.growth_sentence().as_deref(), Some(sentence), "{name}");
    }
    let growing = explain("kinds/adamw-features.room.gz");
    let told = growing.growth_sentence().unwrap();
    assert!(told.ends_with("1.00 MiB per step, mostly at tmp/kinds.py:69 Gpt.forward."), "{told}");
    // A profile has no history.
    assert_eq!(explain("jax_memory.prof.gz").growth_sentence(), None);
}

#[test]
fn a_hidden_limit_is_between_what_was_reserved_and_what_failed() {
    // The programs had set 6 GiB and 8 GiB.
    for (name, limit, needs) in [
        ("oom_fragmented.pickle.gz", 6, "then peaks at 5.83 GiB, which fits unless the limit is lower"),
        ("oom_batch.pickle.gz", 8, "then peaks at 7.90 GiB and fits"),
    ] {
        let explanation = explain(name);
        let (least, most) = explanation.hidden_limit.unwrap();
        assert!((least..most).contains(&Bytes::gib(limit)), "{name}: {least} {most}");
        let told = format!("a limit between {least} and {most}");
        assert!(explanation.verdict.summary.contains(&told), "{}", explanation.verdict.summary);
        let fixes = &explanation.causes[0].fixes;
        assert!(fixes[0].action.ends_with(needs), "{fixes:?}");
        assert!(fixes[1].action.starts_with("raise the limit"), "{fixes:?}");
        // With the bound that the fixes name, the failure is explained within it.
        let named = Bytes::mib(least.get().div_ceil(1 << 20));
        let command = format!("makeroom why --memory {}MiB …", named.get() >> 20);
        assert!(fixes.iter().any(|fix| fix.command.as_deref() == Some(command.as_str())), "{fixes:?}");
        let within = explain_in(name, Room::Limit(named));
        assert_ne!(within.verdict.cause, Cause::ArtificialLimit);
        assert_eq!(within.hidden_limit, None);
    }
    // Expandable segments were on, so that they are not advised.
    let expandable = explain("oom_fragmented-expandable.pickle.gz");
    assert!(expandable.hidden_limit.is_some_and(|(least, most)| (least..most).contains(&Bytes::gib(6))));
    assert!(expandable.causes[0].fixes[0].action.starts_with("raise the limit"));
}

#[test]
fn the_first_step_belongs_to_the_verdict() {
    let first = |name: &str| {
        let explanation = explain(name);
        let fixes = explanation.causes.iter().find(|finding| !finding.fixes.is_empty())?.fixes.clone();
        Some((fixes[0].action.clone(), fixes[0].command.clone()))
    };
    let (action, _) = first("kinds/adamw-features.pickle.gz").unwrap();
    assert_eq!(action, "find what keeps the memory allocated at kinds.py:69 forward alive after every step");
    let (action, command) = first("streams.pickle.gz").unwrap();
    assert!(action.contains("record_stream") && command.unwrap().contains("wait_stream"), "{action}");
    assert_eq!(first("seed004.pickle.gz").unwrap().1.as_deref(), Some("makeroom tune …"));
    assert_eq!(first("kinds/adamw.pickle.gz"), None);
}
