//! Prints, for every recording, reserved ÷ live memory under makeroom's pool and other allocators, and the share of the
//! recorded time that the pool's driver calls would take, in total and in the second half. Used by `bench/run pool`.
//!
//! The output is a Markdown table. Shares are shown only for runs longer than five seconds: in shorter ones, the pool
//! is still allocating its first memory.
#![expect(clippy::print_stdout, reason = "this program prints a table")]

mod recordings;

use makeroom_sim::{Outcome, parse};

use recordings::Recorded;

/// The compared allocators and their column headings.
const ALLOCATORS: [(&str, &str); 5] = [
    ("pytorch", "native"),
    ("pytorch:expandable_segments:True", "expandable"),
    ("cuda-async", "cudaMallocAsync (estimate)"),
    ("makeroom", "makeroom"),
    ("ideal", "ideal"),
];
/// Shares are not shown for shorter runs.
const LONG_RUN_US: u64 = 5_000_000;

fn main() {
    let headings = ALLOCATORS.map(|(_, heading)| heading).join(" | ");
    println!("| recording | peak live | {headings} | driver time | in the second half |");
    println!("|---|---|{}---|---|", "---|".repeat(ALLOCATORS.len()));
    let named = std::env::args_os().skip(1).map(Into::into).collect();
    for recorded in recordings::all(named) {
        row(&recorded);
    }
}

fn row(Recorded { name, program, .. }: &Recorded) {
    let mut cells = Vec::new();
    let mut pool = Outcome::default();
    for (allocator, _) in ALLOCATORS {
        let Ok(spec) = parse(allocator) else { continue };
        let outcome = spec.run(program, None);
        cells.push(format!("{:.4}", outcome.peak_reserved as f64 / outcome.peak_live.max(1) as f64));
        if allocator == "makeroom" {
            pool = outcome;
        }
    }
    let share = |nanoseconds: u64, of_us: u64| match program.recorded_us {
        LONG_RUN_US.. => format!("{:.2} %", nanoseconds as f64 / of_us as f64 / 10.0),
        _ => "–".to_owned(),
    };
    println!(
        "| {name} | {:.3} GB | {} | {} | {} |",
        pool.peak_live as f64 / 1e9,
        cells.join(" | "),
        share(pool.driver_nanoseconds, program.recorded_us),
        share(pool.late_driver_nanoseconds, program.recorded_us / 2)
    );
}
