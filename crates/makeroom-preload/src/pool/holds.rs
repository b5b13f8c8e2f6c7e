//! Reference counts of the devices' primary contexts.
//!
//! The pool lives in a device's primary context and retains it. A program that releases its last reference expects
//! the context to end, so the pool releases its own too, unless memory is still in use: then the program holds a
//! reference that this library did not see.

use std::sync::atomic::{AtomicU64, Ordering};

use super::devices::{self, MOST_DEVICES};
use crate::driver::done::Done;
use crate::driver::types::Device;
use crate::record::event::RawEvent;
use crate::state;

/// The program's references to each device's primary context.
static HOLDS: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];

fn holds(device: Device) -> Option<&'static AtomicU64> {
    HOLDS.get(usize::try_from(device).ok()?)
}

/// Counts a retain, if it succeeded.
pub(crate) fn retained(event: RawEvent, device: Device, done: Done) -> RawEvent {
    if super::is_on()
        && done.is_ok()
        && let Some(holds) = holds(device)
    {
        holds.fetch_add(1, Ordering::Relaxed);
    }
    event
}

/// Counts a release, if it succeeded.
pub(crate) fn released(event: RawEvent, device: Device, done: Done) -> RawEvent {
    // At process exit everything goes anyway, and faster.
    if super::is_on()
        && done.is_ok()
        && !state::is_disabled()
        && let Some(holds) = holds(device)
    {
        let less = |held: u64| held.checked_sub(1);
        if holds.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) == Ok(1) {
            devices::let_go(device);
        }
    }
    event
}
