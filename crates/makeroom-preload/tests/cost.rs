//! The cost of a recorded call: under 1 µs without a stack, under 20 µs with a native one of about twenty-five
//! frames. Medians of many batches, and the best of three runs, to measure the library and not the machine's other
//! work.

use crate::support::{Program, text};

/// Nanoseconds for an allocation and its free.
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
    // Only the allocation has a stack.
    assert!(native - alone < 20_000.0, "{native} - {alone}");
}

#[test]
fn what_recording_cost_is_noted_when_asked_for() {
    let notes = |recording: crate::support::Recording| -> Vec<String> {
        recording.notes.iter().map(|note| text(&note.text)).collect()
    };
    let is_cost = |note: &String| note.starts_with("time inside the recorder: ");
    assert!(!notes(Program::new("plain.c").check_one()).iter().any(is_cost));

    let recording = Program::new("plain.c").variable("MAKEROOM_MEASURE", "on").check_one();
    let events = recording.events.len() as u64;
    let (first, last) = (recording.events[0].1.time_ns, recording.end.unwrap().time_ns);
    let notes = notes(recording);
    let note = notes.iter().find(|note| is_cost(note)).unwrap();
    let figures: Vec<u64> = note.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [inside, calls, beginning, counted, writer] = figures[..] else { panic!("{note}") };
    assert!(calls >= events, "{note}, {events} events");
    assert_eq!(counted, events, "{note}");
    assert!(0 < beginning && beginning < inside && writer > 0, "{note}");
    // The program has one thread, so its time in hooks is part of its run time.
    assert!(inside - beginning < last - first, "{note}, {} ns in all", last - first);
}

/// A program that reads the totals before and after part of its run gets that part alone, with every event in it.
#[test]
fn a_program_hears_what_a_part_of_its_run_cost() {
    let program = Program::new("measured.c");
    let figures = |output: &std::process::Output| -> Vec<u64> {
        text(&output.stdout).split_whitespace().map(|word| word.parse().unwrap()).collect()
    };
    assert_eq!(figures(&program.alone()), [], "no recorder");
    assert_eq!(figures(&program.recorded()), [], "it measures nothing");
    let program = program.variable("MAKEROOM_MEASURE", "on");
    let [inside, calls, events, whole] = figures(&program.recorded())[..] else { panic!("no answer") };
    assert_eq!((calls, events), (200, 200));
    assert!(0 < inside && inside < whole, "{inside} of {whole} ns");
    let program = program.variable("MAKEROOM", "off");
    assert_eq!(figures(&program.recorded()), [], "it records nothing");
}
