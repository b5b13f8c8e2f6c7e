//! Measures replay speed: events per second on one core, for each allocator.
//!
//! Only the replay is timed, not reading the file. The events include segment events and completions of frees, so the
//! figure shows how fast a whole file is processed. Measures CPU time, and each figure is the best of several series of
//! runs, because other programs also slow down caches. Used by `bench/replay`.
#![expect(clippy::print_stdout, reason = "this program prints a table")]

mod recordings;

use std::time::Duration;

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
/// The CPU time of a series of runs, and the number of series. The kernel updates CPU time every few milliseconds.
const SERIES: Duration = Duration::from_millis(200);
const COUNT: usize = 5;

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
    let series = || {
        let begin = cpu_time();
        let mut runs = 0;
        loop {
            std::hint::black_box(spec.run(program, None));
            runs += 1;
            let taken = cpu_time().saturating_sub(begin);
            if taken >= SERIES {
                return taken / runs;
            }
        }
    };
    std::iter::repeat_with(series).take(COUNT).min().unwrap_or_default()
}

/// The CPU time that this thread has used.
fn cpu_time() -> Duration {
    let account = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = account.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the kernel's account of this thread"))
}
