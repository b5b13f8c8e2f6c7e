//! `makeroom run --limit` on the demonstration's programs: a limit counts like a GPU of that size, contexts included.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use makeroom_simcard::testing::Stage;
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// Runs a situation's program on a GPU of 8 GiB with contexts of 512 MiB, limited to 2 GiB in total.
fn limited(name: &str) -> Value {
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("limited").join(name))
        .with_machine("memory=8GiB,context=512MiB");
    let program = env!("CARGO_BIN_EXE_makeroom");
    let output = stage
        .command(program)
        .args(["run", "--limit", "2GiB", "-o", "run.room", "--summary", "run.json", "--", program])
        .args(["demo-program", name])
        .env("MAKEROOM_STACKS", "native")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&std::fs::read(stage.path("run.json")).unwrap()).unwrap();
    summary[0]["explanation"].clone()
}

fn causes(explanation: &Value) -> Vec<&str> {
    let causes = explanation["causes"].as_array().unwrap();
    causes.iter().map(|cause| cause["cause"].as_str().unwrap()).collect()
}

/// The ledger of the limit: contexts are a line in it, and it adds up.
fn assert_closed(explanation: &Value, contexts: u64) {
    let ledger = &explanation["ledger"];
    assert_eq!((&ledger["total_bytes"], &ledger["unaccounted_bytes"]), (&(2048 * MIB).into(), &0.into()));
    let lines = ledger["lines"].as_array().unwrap();
    let line = lines.iter().find(|line| line["what"] == "context and code").unwrap();
    assert_eq!(line["bytes"], contexts * MIB);
}

#[test]
fn live_data_fills_the_limit() {
    let explanation = limited("large-batch");
    assert_eq!(causes(&explanation), ["live_data_fills_device", "artificial_limit"]);
    assert_eq!(explanation["verdict"]["certainty"], "certain");
    assert_closed(&explanation, 512);
}

#[test]
fn a_leak_is_a_leak_under_a_limit() {
    let explanation = limited("missing-free");
    assert_eq!(causes(&explanation)[0], "leak");
    assert_closed(&explanation, 512);
}

#[test]
fn pieces_are_the_cause_and_not_the_limit() {
    let explanation = limited("fragmentation");
    assert_eq!(causes(&explanation)[0], "fragmentation");
    assert_eq!(explanation["verdict"]["certainty"], "certain");
    assert_closed(&explanation, 512);
}

#[test]
fn the_other_frameworks_cache_is_the_cause_and_not_the_limit() {
    let explanation = limited("two-frameworks");
    assert_eq!(causes(&explanation)[0], "cache_held_by_framework");
    assert_closed(&explanation, 512);
}

#[test]
fn contexts_are_the_cause_and_not_the_limit() {
    let explanation = limited("context-left-behind");
    assert_eq!(causes(&explanation)[0], "non_framework_overhead");
}
