//! Allocations and frees per second of one thread and of 64 at once. Run by `bench/run threads`.
//!
//! Every thread has its own stream and replaces its blocks one by one. The pool is measured, not the driver: a
//! warm-up runs until no new memory is needed. The total reserved is shown relative to live memory.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints a table")]

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use makeroom_core::Address;
use makeroom_cuda::Driver;
use makeroom_pool::{Allocator, Options, Pool, Site};

const THREADS: usize = 64;
/// Each figure is the median of this many rounds of this length, taken in turns, because other programs come and go.
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_millis(150);
/// Warm-up: until no new memory was needed for QUIET, at most LONGEST.
const QUIET: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3);

/// A thread's workload.
#[derive(Clone, Copy)]
struct Pattern {
    name: &'static str,
    /// Blocks that it holds.
    held: usize,
    /// Number of sizes, spread evenly up to `largest`.
    sizes: u64,
    largest: u64,
}

const PATTERNS: [Pattern; 4] = [
    Pattern { name: "one size", held: 1, sizes: 1, largest: 4096 },
    Pattern { name: "8 sizes to 64 KiB", held: 16, sizes: 8, largest: 64 << 10 },
    Pattern { name: "32 sizes to 1 MiB", held: 32, sizes: 32, largest: 1 << 20 },
    Pattern { name: "any size to 1 MiB", held: 32, sizes: 2048, largest: 1 << 20 },
];

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Pairs of an allocation and a free that a thread has done, on its own cache line.
#[derive(Default)]
#[repr(align(128))]
struct Done(AtomicU64);

/// Replaces blocks until the round is over.
fn work(pool: &Pool, pattern: Pattern, thread: usize, start: &Barrier, is_over: &AtomicBool, done: &Done) {
    let (own, here) = (pool.stream().unwrap(), Site::here());
    let stream = own.id();
    let mut state = thread as u64 + 1;
    let size = |state: &mut u64| (1 + next(state) % pattern.sizes) * pattern.largest / pattern.sizes;
    let mut held: Vec<Address> =
        (0..pattern.held).map(|_| pool.allocate(size(&mut state), stream, here).unwrap()).collect();
    start.wait();
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..64 {
            let place = next(&mut state) as usize % held.len();
            // SAFETY: nothing uses the memory.
            unsafe { pool.free(held[place], stream, here) }.unwrap();
            held[place] = black_box(pool.allocate(size(&mut state), stream, here).unwrap());
        }
        done.0.fetch_add(64, Ordering::Relaxed);
    }
    for address in held {
        // SAFETY: nothing uses the memory.
        unsafe { pool.free(address, stream, here) }.unwrap();
    }
}

/// CPU time used by this process, in seconds.
fn processor_seconds() -> f64 {
    // SAFETY: all zeros are a valid `rusage`, used as the out-parameter.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Results of one round.
#[derive(Clone, Copy)]
struct Round {
    /// Pairs per second, and CPU nanoseconds per pair.
    rate: f64,
    each: f64,
    /// Handles created and released in the meantime.
    calls: f64,
    /// Reserved over live memory, at the end.
    reserved: f64,
}

fn round(driver: &'static Driver, pattern: Pattern, threads: usize) -> Round {
    let pool = Pool::new(driver, 0, Options::default()).unwrap();
    let (start, is_over) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let done: Vec<Done> = (0..threads).map(|_| Done::default()).collect();
    let calls = || {
        let done = pool.stats().done;
        done.created + done.released
    };
    let look = || {
        let pairs: u64 = done.iter().map(|done| done.0.load(Ordering::Relaxed)).sum();
        (pairs as f64, Instant::now(), processor_seconds())
    };
    let (before, after, calls, stats) = std::thread::scope(|scope| {
        for (thread, done) in done.iter().enumerate() {
            let (pool, start, is_over) = (&pool, &start, &is_over);
            scope.spawn(move || work(pool, pattern, thread, start, is_over, done));
        }
        start.wait();
        let (begin, mut seen) = (Instant::now(), u64::MAX);
        while seen != calls() && begin.elapsed() < LONGEST {
            seen = calls();
            std::thread::sleep(QUIET);
        }
        seen = calls();
        let before = look();
        std::thread::sleep(TIME);
        let after = look();
        let (calls, stats) = (calls() - seen, pool.stats());
        is_over.store(true, Ordering::Relaxed);
        (before, after, calls, stats)
    });
    let pairs = after.0 - before.0;
    Round {
        rate: pairs / (after.1 - before.1).as_secs_f64(),
        each: (after.2 - before.2) * 1e9 / pairs,
        calls: calls as f64,
        reserved: stats.reserved as f64 / stats.live as f64,
    }
}

fn median(rounds: [Round; ROUNDS], figure: impl Fn(&Round) -> f64) -> f64 {
    let mut figures = rounds.map(|round| figure(&round));
    figures.sort_by(f64::total_cmp);
    figures[ROUNDS / 2]
}

fn main() {
    let driver = Driver::load().unwrap();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!("{cores} cores; share: rate of {THREADS} threads ÷ (rate of one thread × cores), goal 0.5");
    println!(
        "ns: CPU time per pair; calls: driver calls for memory; reserved: reserved ÷ live memory of all threads"
    );
    println!(
        "{:<18} {:>12} {:>6} {:>13} {:>6} {:>6} {:>9} {:>6}",
        "pairs a second", "1 thread", "ns", "64 threads", "ns", "calls", "reserved", "share"
    );
    for pattern in PATTERNS {
        let rounds = [(); ROUNDS].map(|()| (round(driver, pattern, 1), round(driver, pattern, THREADS)));
        let (one, many) = (rounds.map(|round| round.0), rounds.map(|round| round.1));
        let (single, rate) = (median(one, |round| round.rate), median(many, |round| round.rate));
        let (each, of_many) = (median(one, |round| round.each), median(many, |round| round.each));
        let (calls, reserved) = (median(many, |round| round.calls), median(many, |round| round.reserved));
        let share = rate / single / cores as f64;
        println!(
            "{:<18} {single:>12.0} {each:>6.0} {rate:>13.0} {of_many:>6.0} {calls:>6.0} {reserved:>9.2} {share:>6.2}",
            pattern.name
        );
    }
}
