//! Counts what the pool's policy needs beyond host time: calls of its backing per allocation and free, and reserved
//! memory relative to live memory. Used by `bench/run pool-speed`; the same in every run.
#![expect(clippy::print_stdout, reason = "this program prints a table")]

#[path = "../benches/patterns/mod.rs"]
mod patterns;

use patterns::{PAIRS, PATTERNS, Work};

/// Rounds of a pattern; calls are counted in the last one.
const ROUNDS: usize = 31;

fn main() {
    println!("pattern\tcalls a pair\treserved ÷ live");
    for pattern in &PATTERNS {
        let mut work = Work::new(pattern);
        work.rounds(ROUNDS - 1);
        let before = work.backing.calls;
        work.rounds(1);
        let (calls, stats) = (work.backing.calls - before, work.pool.stats());
        let reserved = stats.peak_reserved as f64 / stats.peak_live as f64;
        println!("{}\t{:.5}\t{reserved:.4}", pattern.name, calls as f64 / PAIRS as f64);
    }
}
