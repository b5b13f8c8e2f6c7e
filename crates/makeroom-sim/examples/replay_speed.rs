//! Measures replay speed: events per second on one core, for each allocator.
//!
//! Only the replay is timed, not reading the file. The events include segment events and completions of frees, so the
//! figure shows how fast a whole file is processed. Each figure is the best of many runs. Used by `bench/replay`.
#![expect(clippy::print_stdout, reason = "this program prints a table")]

mod recordings;

use std::time::{Duration, Instant};

use makeroom_sim::{AllocatorSpec, Program, parse};

use recordings::Recorded;

const ALLOCATORS: [&str; 8] = [
    "pytorch",
    "pytorch:expandable_segments:True",
    "cuda-async",
    "bfc",
    "cupy",
    "rmm-pool",
    "makeroom",
    "ideal",
];
/// How long to measure each figure.
const PATIENCE: Duration = Duration::from_millis(500);

fn main() {
    println!("{:<28}{:<34}{:>10}{:>10}{:>16}", "recording", "allocator", "events", "ms", "events/s");
    for Recorded { name, program, events } in recordings::all() {
        for spec in ALLOCATORS.iter().filter_map(|name| parse(name).ok()) {
            let seconds = best(&program, &spec).as_secs_f64();
            println!(
                "{name:<28}{:<34}{events:>10}{:>10.3}{:>16.0}",
                spec.name(),
                seconds * 1e3,
                events as f64 / seconds
            );
        }
    }
}

fn best(program: &Program, spec: &AllocatorSpec) -> Duration {
    let begin = Instant::now();
    let mut best = Duration::MAX;
    while begin.elapsed() < PATIENCE {
        let start = Instant::now();
        std::hint::black_box(spec.run(program, None));
        best = best.min(start.elapsed());
    }
    best
}
