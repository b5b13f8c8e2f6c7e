//! What recording costs the program, added up exactly: `MAKEROOM_MEASURE=on` has every hook's own work clocked, and
//! the recording ends with a note of the sum. Two clock reads are of the size of a tensor's event, so they are made only
//! when asked for, and the sum is then a little more than a run without them spends.
//!
//! The driver's and PyTorch's own functions are not in the sum, nor is the way into a hook: a few instructions.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock;
use crate::config::config;

static CALLS: AtomicU64 = AtomicU64::new(0);
static INSIDE_NS: AtomicU64 = AtomicU64::new(0);
static BEGINNING_NS: AtomicU64 = AtomicU64::new(0);

/// Runs what a hook does beside the call it is for.
#[inline]
pub(crate) fn of_call(work: impl FnOnce()) {
    if !config().is_measuring {
        work();
        return;
    }
    let start = clock::monotonic_ns();
    work();
    INSIDE_NS.fetch_add(clock::monotonic_ns().wrapping_sub(start), Ordering::Relaxed);
    CALLS.fetch_add(1, Ordering::Relaxed);
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
    for figure in [&CALLS, &INSIDE_NS, &BEGINNING_NS] {
        figure.store(0, Ordering::Relaxed);
    }
}

/// The sum in words, if it was asked for. Called by the writer, whose own time is added.
pub(crate) fn text() -> Option<String> {
    config().is_measuring.then(|| {
        format!(
            "time inside the recorder: {} ns in {} calls, of it {} ns to begin; its writer used {} ns of processor time",
            INSIDE_NS.load(Ordering::Relaxed),
            CALLS.load(Ordering::Relaxed),
            BEGINNING_NS.load(Ordering::Relaxed),
            clock::thread_cpu_ns(),
        )
    })
}
