//! On which device and in which context the calling thread works.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use super::real;
use super::types::SUCCESS;

/// A context and its device, as events carry them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// The context's handle, 0 for none.
    pub(crate) context: u64,
    /// The device's index.
    pub(crate) device: u8,
    /// Which contexts were gone when this was asked.
    generation: u32,
}

/// Counts destroyed contexts: a new one may get the handle of an old one and lie on another device.
static GENERATION: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static LAST: Cell<Place> = const { Cell::new(Place { context: 0, device: 0, generation: 0 }) };
}

/// Where the calling thread works. The driver keeps its current context in a thread-local variable: asking for it
/// costs a few nanoseconds, touches no stream and is allowed during a capture.
pub(crate) fn current() -> Place {
    let mut context = std::ptr::null_mut();
    // SAFETY: the driver's own function with a valid place for its answer.
    let result = real::current_context().map(|ask| unsafe { ask(&raw mut context) });
    if result != Some(SUCCESS) || context.is_null() {
        return Place::default();
    }
    let generation = GENERATION.load(Ordering::Relaxed);
    let last = LAST.get();
    if last.context == context as u64 && last.generation == generation {
        return last;
    }
    let mut device = 0;
    // SAFETY: as above; a context is current.
    let result = real::current_device().map(|ask| unsafe { ask(&raw mut device) });
    let device = if result == Some(SUCCESS) { u8::try_from(device).unwrap_or(0) } else { 0 };
    let place = Place { context: context as u64, device, generation };
    LAST.set(place);
    place
}

/// A context is gone.
pub(crate) fn context_ended() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
