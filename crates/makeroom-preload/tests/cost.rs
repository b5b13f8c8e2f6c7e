//! What a recorded call costs: under 1 µs without a stack, under 20 µs with a native one of some twenty-five frames.
//! Medians of many batches, and the best of three runs: what is measured is the library, not the machine's other work.

mod support;

use support::{Program, text};

/// Nanoseconds of an allocation with its free.
fn pair(stacks: Option<&str>) -> f64 {
    let measure = || {
        let program = Program::new("cost.c");
        let output = match stacks {
            Some(stacks) => program.variable("MAKEROOM_STACKS", stacks).recorded(),
            None => program.alone(),
        };
        text(&output.stdout).trim().parse().unwrap_or(f64::MAX)
    };
    (0..3).map(|_| measure()).fold(f64::MAX, f64::min)
}

#[test]
fn a_recorded_call_is_cheap() {
    let (alone, without, native) = (pair(None), pair(Some("none")), pair(Some("native")));
    println!(
        "an allocation with its free: {alone} ns alone, {without} ns recorded, {native} ns with native stacks"
    );
    assert!(without - alone < 2.0 * 1000.0, "{without} - {alone}");
    // Only the allocation carries a stack.
    assert!(native - alone < 20_000.0, "{native} - {alone}");
}
