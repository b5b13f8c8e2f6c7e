//! Streams that are being captured into graphs: while there is one, the recorder asks the driver nothing.

use std::sync::atomic::{AtomicI32, Ordering};

use super::call::Done;

static CAPTURES: AtomicI32 = AtomicI32::new(0);

/// A capture began, if the driver said so.
pub(crate) fn began(done: Done) {
    if done.is_ok() {
        CAPTURES.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a stream answers that was not being captured, or not by this thread.
const DID_NOT_END: [i32; 5] = [1, 3, 4, 401, 908];

/// A capture ended: an invalid one is over too. One that this call could not end is not.
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
