//! Counts lost events, by reason. The writer takes the counts and writes them into the recording.

use std::sync::atomic::{AtomicU64, Ordering};

/// Events of threads that got no ring.
static WITHOUT_RING: AtomicU64 = AtomicU64::new(0);
/// Calls made in a signal handler while their thread was recording another.
static NESTED: AtomicU64 = AtomicU64::new(0);

/// Counts an event whose thread has no ring.
pub(crate) fn count_without_ring() {
    WITHOUT_RING.fetch_add(1, Ordering::Relaxed);
}

/// Counts a call that came while its thread was recording.
pub(crate) fn count_nested() {
    NESTED.fetch_add(1, Ordering::Relaxed);
}

/// Events lost since the last call because their thread had no ring.
pub(crate) fn take_without_ring() -> u64 {
    WITHOUT_RING.swap(0, Ordering::Relaxed)
}

/// Events lost since the last call because they came while their thread was recording.
pub(crate) fn take_nested() -> u64 {
    NESTED.swap(0, Ordering::Relaxed)
}

/// Drops the count of events without a ring in a forked child: they are the parent's.
pub(crate) fn reset_after_fork() {
    WITHOUT_RING.store(0, Ordering::Relaxed);
}
