//! makeroom's pool on real recordings: how much it reserves, and how long its driver calls take.

use std::path::Path;

use makeroom_core::{Action, Bytes, Start, Trace};
use makeroom_sim::{Comparing, Outcome, Program, parse};
use makeroom_trace::Input;

fn read(name: &str) -> Trace {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(format!("{name}.pickle.gz"));
    match makeroom_trace::open(&path).expect("the recording is readable") {
        Input::Trace(trace) => trace,
        Input::Text(_) => panic!("{name} is a recording"),
    }
}

fn run(name: &str, memory: Option<u64>) -> (Program, Outcome) {
    let trace = read(name);
    let device = &trace.devices[0];
    let program = Program::new(device, &trace.stacks, &Start::new(device));
    let outcome = parse("makeroom").expect("the name is known").run(&program, memory);
    (program, outcome)
}

#[test]
fn little_more_is_reserved_than_is_live() {
    for (name, most) in [
        ("gpt2_varlen", 1.007),
        ("oom_batch", 1.007),
        ("oom_fragmented", 1.012),
        ("oom_fragmented-expandable", 1.014),
        ("vit_varbatch-ring", 1.012),
    ] {
        let (_, outcome) = run(name, None);
        let ratio = outcome.peak_reserved as f64 / outcome.peak_live as f64;
        assert_eq!(outcome.refusal, None);
        assert!((1.0..most).contains(&ratio), "{name}: {ratio}");
    }
}

#[test]
fn the_page_of_the_pool_shows_what_its_command_prints() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pool.md");
    let page = std::fs::read_to_string(page).expect("the project has one");
    let figures = |name: &str, allocator: &str| {
        let trace = read(name);
        let device = &trace.devices[0];
        let program = Program::new(device, &trace.stacks, &Start::new(device));
        let outcome = parse(allocator).expect("the name is known").run(&program, None);
        (outcome.peak_live, outcome.peak_reserved as f64 / outcome.peak_live as f64)
    };
    let ratio = |name: &str, allocator: &str| figures(name, allocator).1;
    let table = page.lines().skip_while(|line| !line.starts_with("| recording | peak live | native |"));
    let rows: Vec<&str> = table.skip(2).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() >= 5, "{rows:?}");
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let allocators = ["pytorch", "pytorch:expandable_segments:True", "cuda-async", "makeroom", "ideal"]
            .iter()
            .zip(3..);
        for (allocator, cell) in allocators {
            let (live, ratio) = figures(cells[1], allocator);
            assert_eq!(
                cells[cell],
                format!("{ratio:.4}"),
                "{allocator} on {}: bench/run pool prints the table",
                cells[1]
            );
            assert_eq!(cells[2], format!("{:.3} GB", live as f64 / 1e9), "what {} is divided by", cells[1]);
        }
    }
    let several =
        format!("({:.2} and {:.2})", ratio("streams", "makeroom"), ratio("streams-expandable", "makeroom"));
    assert!(page.contains(&several), "those of several streams: {several}");
}

/// A request that failed in the recorded run succeeds here, so more memory is live than in the recorded run.
#[test]
fn a_request_that_was_refused_is_told_where_it_raises_the_peak() {
    let trace = read("oom_fragmented");
    let device = &trace.devices[0];
    let allocations = device.events.iter().filter(|event| event.action == Action::Alloc).count();
    let ideal = parse("ideal").expect("the name is known");
    let comparing = Comparing { allocators: vec![ideal], ..Comparing::default() };
    let comparison = comparing.run(&trace, device, |_| {});
    assert_eq!(comparison.allocations, allocations + Start::new(device).blocks.len());
    let live = Bytes::new(comparison.runs[0].outcome.peak_live);
    assert!(live > comparison.peak_live, "{live}");
    let told = format!(
        "1 request failed in the recorded run; if it fits here, it is freed immediately, which raises the live peak to {live}"
    );
    assert_eq!(comparison.notes.last(), Some(&told), "{:?}", comparison.notes);
}

#[test]
fn driver_calls_are_a_small_part_of_a_long_run() {
    let (program, outcome) = run("gpt2_varlen", None);
    let time = program.recorded_us as f64 * 1e3;
    assert!(time > 5e9);
    assert!((outcome.driver_nanoseconds as f64) < 0.03 * time);
    assert!((outcome.late_driver_nanoseconds as f64) < 0.006 * time / 2.0, "{outcome:?}");
}

#[test]
fn a_run_that_failed_for_fragments_completes() {
    // PyTorch's allocator failed under this limit, although the live memory would have fit.
    let (_, outcome) = run("oom_fragmented", Some(6 << 30));
    assert_eq!(outcome.refusal, None);
}

#[test]
fn frees_that_wait_for_a_stream_are_waited_for() {
    let (_, outcome) = run("streams", None);
    assert_eq!(outcome.refusal, None);
    assert!(outcome.peak_reserved >= outcome.peak_live, "{outcome:?}");
}
