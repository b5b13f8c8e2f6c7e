//! Event count on a futex: wakes the writer before its interval is over.
//!
//! The writer reads the count, drains the rings and sleeps only while the count is unchanged, so a request that comes
//! in between is never missed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::wait;

/// Number of requests so far, wrapping.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// Wakes the writer early.
pub(crate) fn wake() {
    REQUESTS.fetch_add(1, Ordering::Release);
    wait::wake(&REQUESTS);
}

/// The number of requests so far. The writer reads it before it looks for work.
pub(crate) fn requests() -> u32 {
    REQUESTS.load(Ordering::Acquire)
}

/// Sleeps until there are more requests than `seen`, at most for `longest`.
pub(crate) fn sleep_until_request(seen: u32, longest: Duration) {
    wait::sleep(&REQUESTS, seen, longest);
}
