//! The recorder's overhead, measured exactly. With `MAKEROOM_MEASURE=on` every hook times its own work, and the
//! recording ends with a note of the total. Two clock reads cost as much as a tensor event, so they are off by
//! default, and their own cost is subtracted.
//!
//! The total excludes the driver's and PyTorch's own functions and the few instructions that enter a hook. The pool's
//! time, when it serves a call in place of the driver, is a separate total that includes the driver calls it makes.
//!
//! To measure part of a run, a program reads the totals before and after it (`makeroom_recorder_cost`,
//! `makeroom_pool_cost`). Totals of two runs are not comparable: one-time work (pages of a large library read from
//! disk for its first stacks) varies between 1 and 100 ms. Events are counted too, so that a reader of a recording
//! can tell whether it is the one that was measured.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock;
use crate::config::config;

static CALLS: AtomicU64 = AtomicU64::new(0);
static EVENTS: AtomicU64 = AtomicU64::new(0);
static INSIDE_NS: AtomicU64 = AtomicU64::new(0);
static BEGINNING_NS: AtomicU64 = AtomicU64::new(0);
static POOL_CALLS: AtomicU64 = AtomicU64::new(0);
static POOL_NS: AtomicU64 = AtomicU64::new(0);

/// Time elapsed since `start`, minus the cost of reading the clock.
fn since(start: u64) -> u64 {
    clock::monotonic_ns().wrapping_sub(start).saturating_sub(reading())
}

/// The cost of reading the clock: the smallest difference between two reads in a row.
fn reading() -> u64 {
    /// 0 until measured; two threads that measure at once get about the same.
    static READING_NS: AtomicU64 = AtomicU64::new(0);
    match READING_NS.load(Ordering::Relaxed) {
        0 => {
            let apart = |_| clock::monotonic_ns().abs_diff(clock::monotonic_ns());
            let least = (0..64).map(apart).min().unwrap_or(0).max(1);
            READING_NS.store(least, Ordering::Relaxed);
            least
        }
        known => known,
    }
}

/// Runs a hook's own work, without the hooked call.
#[inline]
pub(crate) fn of_call(work: impl FnOnce()) {
    if !config().is_measuring {
        work();
        return;
    }
    let start = clock::monotonic_ns();
    work();
    INSIDE_NS.fetch_add(since(start), Ordering::Relaxed);
    CALLS.fetch_add(1, Ordering::Relaxed);
}

/// Runs the pool's work for a call.
#[inline]
pub(crate) fn of_pool<T>(work: impl FnOnce() -> T) -> T {
    if !config().is_measuring {
        return work();
    }
    let start = clock::monotonic_ns();
    let result = work();
    POOL_NS.fetch_add(since(start), Ordering::Relaxed);
    POOL_CALLS.fetch_add(1, Ordering::Relaxed);
    result
}

/// Counts an event that was sent to the writer or dropped.
#[inline]
pub(crate) fn of_event() {
    if config().is_measuring {
        EVENTS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs the one-time initialization in the first call. That call's time includes it.
pub(crate) fn of_beginning(work: impl FnOnce() -> bool) -> bool {
    let start = clock::monotonic_ns();
    let result = work();
    BEGINNING_NS.store(clock::monotonic_ns().wrapping_sub(start), Ordering::Relaxed);
    result
}

/// Resets the totals in a forked child.
pub(crate) fn reset() {
    for figure in [&CALLS, &EVENTS, &INSIDE_NS, &BEGINNING_NS, &POOL_CALLS, &POOL_NS] {
        figure.store(0, Ordering::Relaxed);
    }
}

/// The totals as text, if measured. Called on the writer thread, because it adds that thread's CPU time.
pub(crate) fn text() -> Option<String> {
    config().is_measuring.then(|| {
        let pool = match POOL_CALLS.load(Ordering::Relaxed) {
            0 => String::new(),
            calls => {
                format!("; time inside the pool: {} ns in {calls} calls", POOL_NS.load(Ordering::Relaxed))
            }
        };
        format!(
            "time inside the recorder: {} ns in {} calls, {} ns of that at startup; {} events; its writer used {} ns of \
             CPU time{pool}",
            INSIDE_NS.load(Ordering::Relaxed),
            CALLS.load(Ordering::Relaxed),
            BEGINNING_NS.load(Ordering::Relaxed),
            EVENTS.load(Ordering::Relaxed),
            clock::thread_cpu_ns(),
        )
    })
}

/// The recorder's overhead so far: nanoseconds, calls, events. `None` if nothing is measured.
pub(crate) fn of_recorder() -> Option<[u64; 3]> {
    config().is_measuring.then(|| [&INSIDE_NS, &CALLS, &EVENTS].map(|figure| figure.load(Ordering::Relaxed)))
}

/// The pool's time so far: nanoseconds, calls. `None` if nothing is measured.
pub(crate) fn of_pool_so_far() -> Option<[u64; 2]> {
    config().is_measuring.then(|| [&POOL_NS, &POOL_CALLS].map(|figure| figure.load(Ordering::Relaxed)))
}
