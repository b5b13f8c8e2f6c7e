//! Counts stream captures into graphs. While one is open, the recorder does not sample the driver.
//!
//! Some calls invalidate every open capture of a context (`cuCtxRecordEvent`). They run under a lock that a thread passes
//! through before it begins a capture, so no capture begins between the check and the call.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::done::Done;

static CAPTURES: AtomicI32 = AtomicI32::new(0);
/// Threads that are about to begin a capture.
static BEGINNING: AtomicI32 = AtomicI32::new(0);
/// Held by a call that would invalidate captures.
static INVALIDATING: Mutex<()> = Mutex::new(());
/// Far longer than such a call takes. A forked child may have a copy of the lock that is never released.
const LONGEST: Duration = Duration::from_millis(100);

/// A capture that is about to begin, until the call has returned.
pub(crate) struct Beginning(());

/// A capture is about to begin. Waits for calls that would invalidate it.
pub(crate) fn begins() -> Beginning {
    BEGINNING.fetch_add(1, Ordering::SeqCst);
    let start = Instant::now();
    while matches!(INVALIDATING.try_lock(), Err(TryLockError::WouldBlock)) && start.elapsed() < LONGEST {
        std::thread::yield_now();
    }
    Beginning(())
}

impl Drop for Beginning {
    fn drop(&mut self) {
        BEGINNING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A capture began, if the call succeeded.
pub(crate) fn began(done: Done) {
    if done.is_ok() {
        CAPTURES.fetch_add(1, Ordering::SeqCst);
    }
}

/// Results of ending a capture on a stream that was not being captured, or not by this thread.
const DID_NOT_END: [i32; 5] = [1, 3, 4, 401, 908];

/// A capture ended. An invalidated capture is over too; a call that could not end one leaves it open.
pub(crate) fn ended(done: Done) {
    if DID_NOT_END.contains(&done.0) {
        return;
    }
    let _ = CAPTURES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| (open > 0).then(|| open - 1));
}

/// Whether a stream is being captured.
pub(crate) fn is_open() -> bool {
    CAPTURES.load(Ordering::Relaxed) > 0
}

/// Runs a call that would invalidate captures, unless one is open or about to begin.
pub(crate) fn unless_open(call: &mut dyn FnMut()) {
    let _invalidating = INVALIDATING.lock().unwrap_or_else(PoisonError::into_inner);
    if BEGINNING.load(Ordering::SeqCst) == 0 && CAPTURES.load(Ordering::SeqCst) == 0 {
        call();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_keeps_calls_away_from_before_it_begins_until_it_ends() {
        let is_run = || {
            let mut is_run = false;
            unless_open(&mut || is_run = true);
            is_run
        };
        assert!(is_run());
        let beginning = begins();
        assert!(!is_run());
        began(Done(0));
        drop(beginning);
        assert!(!is_run() && is_open());
        ended(Done(0));
        assert!(is_run());
    }
}
