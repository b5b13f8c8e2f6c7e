//! Counts stream captures into graphs. While one is open, the recorder does not sample the driver.

use std::sync::atomic::{AtomicI32, Ordering};

use super::done::Done;

static CAPTURES: AtomicI32 = AtomicI32::new(0);

/// A capture began, if the call succeeded.
pub(crate) fn began(done: Done) {
    if done.is_ok() {
        CAPTURES.fetch_add(1, Ordering::Relaxed);
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
