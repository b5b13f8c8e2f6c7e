//! On which device and in which context the calling thread works.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use super::real;
use super::types::{Handle, SUCCESS};

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

/// The device of a context that need not be current.
pub(crate) fn device_of(context: Handle) -> Option<i32> {
    let (push, pop) = (real::push_context()?, real::pop_context()?);
    let mut device = 0;
    let mut popped = std::ptr::null_mut();
    // SAFETY: the program names the context in a call of its own, and what is pushed is popped again.
    unsafe {
        if push(context) != SUCCESS {
            return None;
        }
        let result = real::current_device().map(|ask| ask(&raw mut device));
        pop(&raw mut popped);
        (result == Some(SUCCESS)).then_some(device)
    }
}

/// A context is gone.
pub(crate) fn context_ended() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
