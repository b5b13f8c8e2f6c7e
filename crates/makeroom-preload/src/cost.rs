//! What recording costs the program, added up exactly: `MAKEROOM_MEASURE=on` has every hook's own work clocked, and
//! the recording ends with a note of the sum. Two clock reads are of the size of a tensor's event, so they are made only
//! when asked for, and what they take themselves is no part of the sum.
//!
//! The driver's and PyTorch's own functions are not in the sum, nor is the way into a hook: a few instructions. What the pool
//! does where it answers for the driver is added up apart, the driver calls that it makes included.
//!
//! A program that wants the cost of a part of its run asks before and after it (`makeroom_recorder_cost`,
//! `makeroom_pool_cost`). Sums of two runs must not be compared: what happens once in a process (pages of a large library
//! that come from the disk for its first stacks) takes now 1 and now 100 ms. The events that were handed on are counted as
//! well, so that whoever reads a recording can tell that it is the one that was measured.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock;
use crate::config::config;

static CALLS: AtomicU64 = AtomicU64::new(0);
static EVENTS: AtomicU64 = AtomicU64::new(0);
static INSIDE_NS: AtomicU64 = AtomicU64::new(0);
static BEGINNING_NS: AtomicU64 = AtomicU64::new(0);
static POOL_CALLS: AtomicU64 = AtomicU64::new(0);
static POOL_NS: AtomicU64 = AtomicU64::new(0);

/// The time since then, less what a reading of the clock takes by itself.
fn since(start: u64) -> u64 {
    clock::monotonic_ns().wrapping_sub(start).saturating_sub(reading())
}

/// What two readings with nothing in between are apart, at the least.
fn reading() -> u64 {
    /// 0 before it is known; two threads that find it out at once find much the same.
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

/// Runs what a hook does beside the call it is for.
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

/// Runs what the pool does for a call.
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

/// An event was handed on to the writer, or lost.
#[inline]
pub(crate) fn of_event() {
    if config().is_measuring {
        EVENTS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs what happens once, in the first call. It counts for that call too.
pub(crate) fn of_beginning(work: impl FnOnce() -> bool) -> bool {
    let start = clock::monotonic_ns();
    let result = work();
    BEGINNING_NS.store(clock::monotonic_ns().wrapping_sub(start), Ordering::Relaxed);
    result
}

/// Forgets what the parent's calls cost: in a forked child.
pub(crate) fn reset() {
    for figure in [&CALLS, &EVENTS, &INSIDE_NS, &BEGINNING_NS, &POOL_CALLS, &POOL_NS] {
        figure.store(0, Ordering::Relaxed);
    }
}

/// The sum in words, if it was asked for. Called by the writer, whose own time is added.
pub(crate) fn text() -> Option<String> {
    config().is_measuring.then(|| {
        let pool = match POOL_CALLS.load(Ordering::Relaxed) {
            0 => String::new(),
            calls => {
                format!("; time inside the pool: {} ns in {calls} calls", POOL_NS.load(Ordering::Relaxed))
            }
        };
        format!(
            "time inside the recorder: {} ns in {} calls, of it {} ns to begin; {} events; its writer used {} ns of \
             processor time{pool}",
            INSIDE_NS.load(Ordering::Relaxed),
            CALLS.load(Ordering::Relaxed),
            BEGINNING_NS.load(Ordering::Relaxed),
            EVENTS.load(Ordering::Relaxed),
            clock::thread_cpu_ns(),
        )
    })
}

/// What it cost up to now: nanoseconds inside, calls, events. For programs that measure themselves; 0 if there is an
/// answer, otherwise nothing is measured.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn makeroom_recorder_cost(figures: *mut [u64; 3]) -> i32 {
    if !config().is_measuring || !crate::state::is_recording() || figures.is_null() {
        return -1;
    }
    let now = [&INSIDE_NS, &CALLS, &EVENTS].map(|figure| figure.load(Ordering::Relaxed));
    // SAFETY: by its documentation the caller passes room for three words.
    unsafe { figures.write(now) };
    0
}

/// What the pool's answers cost up to now: nanoseconds, calls. 0 if there is an answer, otherwise nothing is measured.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn makeroom_pool_cost(figures: *mut [u64; 2]) -> i32 {
    if !config().is_measuring || !crate::pool::is_on() || figures.is_null() {
        return -1;
    }
    let now = [&POOL_NS, &POOL_CALLS].map(|figure| figure.load(Ordering::Relaxed));
    // SAFETY: by its documentation the caller passes room for two words.
    unsafe { figures.write(now) };
    0
}
