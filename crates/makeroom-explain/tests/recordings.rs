//! Real recordings and what must be said of them.

use std::path::PathBuf;

use makeroom_core::{Bytes, Trace};
use makeroom_explain::{Cause, Certainty, Explanation, Room, Site, TraceQuestion, explain_trace};
use makeroom_trace::Input;

fn trace(name: &str) -> Trace {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(format!("{name}.pickle.gz"));
    match makeroom_trace::open(&path).unwrap() {
        Input::Trace(trace) => trace,
        Input::Text(_) => panic!("{name} is no recording"),
    }
}

fn explain(name: &str, room: Room) -> Explanation {
    explain_trace(&trace(name), &TraceQuestion { room, device: None })
}

fn places(sites: &[Site]) -> Vec<&str> {
    sites.iter().flat_map(|site| [vec![site.place.as_str()], places(&site.callees)].concat()).collect()
}

/// Every byte of the total is on a line or unaccounted, and places hold no more than what is live.
fn assert_balanced(explanation: &Explanation) {
    let ledger = explanation.ledger.as_ref().unwrap();
    let listed: Bytes = ledger.lines().iter().map(|line| line.bytes()).sum();
    if let Some(total) = ledger.total() {
        assert_eq!(ledger.unaccounted(), 0);
        assert_eq!(listed, total);
    }
    let live = ledger.lines()[0].bytes();
    let shown: Bytes = explanation.sites.iter().map(|site| site.bytes).sum();
    assert_eq!(shown + explanation.other_sites, live);
}

#[test]
fn fragmentation_is_named_with_the_lines_that_hold_the_memory() {
    let explanation = explain("oom_fragmented", Room::Limit(Bytes::gib(6)));
    assert_eq!(explanation.verdict.cause, Cause::Fragmentation);
    assert_eq!(explanation.verdict.certainty, Certainty::Certain);
    assert_balanced(&explanation);
    let places = places(&explanation.sites);
    for line in ["workloads.py:25 train_lm", "workloads.py:26 train_lm", "workloads.py:16 llm"] {
        assert!(places.contains(&line), "{line} is missing in {places:?}");
    }
    assert_eq!(explanation.request.unwrap().site.as_deref(), Some("workloads.py:25 train_lm"));
    assert!(explanation.causes[0].fixes[0].command.as_deref().unwrap().contains("expandable_segments:True"));
}

#[test]
fn live_data_is_named_and_the_step_must_shrink() {
    let explanation = explain("oom_batch", Room::Limit(Bytes::gib(8)));
    assert_eq!(explanation.verdict.cause, Cause::LiveDataFillsDevice);
    assert_balanced(&explanation);
    assert!(explanation.causes[0].fixes[0].action.contains('%'), "{:?}", explanation.causes[0].fixes[0]);
    let commands = explanation.causes[0].fixes.iter().filter_map(|fix| fix.command.as_deref());
    assert!(!commands.into_iter().any(|command| command.contains("expandable_segments")));
}

#[test]
fn expandable_segments_are_not_advised_when_they_are_on() {
    let explanation = explain("oom_fragmented-expandable", Room::Limit(Bytes::gib(6)));
    let commands: Vec<&str> = explanation
        .causes
        .iter()
        .flat_map(|cause| cause.fixes.iter().filter_map(|fix| fix.command.as_deref()))
        .collect();
    assert!(!commands.iter().any(|command| command.contains("expandable_segments")), "{commands:?}");
}

#[test]
fn a_run_that_did_not_fail_says_what_filled_its_peak() {
    let explanation = explain("gpt2_varlen", Room::Unknown);
    assert_eq!(explanation.verdict.cause, Cause::None);
    assert_balanced(&explanation);
    let ledger = explanation.ledger.unwrap();
    assert_eq!(ledger.lines()[0].bytes(), Bytes::new(15_387_693_704));
    assert!(places(&explanation.sites).contains(&"workloads.py:25 train_lm"));
}

#[test]
fn a_limit_that_the_snapshot_does_not_hold_is_suspected() {
    let explanation = explain("oom_fragmented", Room::Unknown);
    assert_eq!(explanation.verdict.cause, Cause::ArtificialLimit);
    assert_eq!(explanation.verdict.certainty, Certainty::Likely);
    assert!(explanation.next.iter().any(|fix| fix.command.as_deref().unwrap_or("").contains("--card")));
}

#[test]
fn a_card_is_accounted_for_with_driver_and_context() {
    let explanation = explain("streams", Room::Card(Bytes::gib(24)));
    assert_balanced(&explanation);
    let ledger = explanation.ledger.unwrap();
    assert_eq!(ledger.total(), Some(Bytes::gib(24)));
    assert!(ledger.lines().iter().any(|line| line.what() == "context and code"));
    assert!(ledger.lines()[0].parts().iter().any(|part| part.what() == "freed, waiting for a stream"));
}

#[test]
fn private_pools_are_told_apart() {
    let explanation = explain("graphs", Room::Unknown);
    let ledger = explanation.ledger.unwrap();
    assert!(ledger.lines()[0].parts().iter().any(|part| part.what() == "in private pools"));
}

#[test]
fn a_recording_that_lost_its_beginning_says_so() {
    let explanation = explain("vit_varbatch-ring", Room::Unknown);
    assert_balanced(&explanation);
    assert!(explanation.notes.iter().any(|note| note.contains("began late")), "{:?}", explanation.notes);
}
