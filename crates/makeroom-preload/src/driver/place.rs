//! The calling thread's current device and context, and those of a stream.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use super::real;
use super::types::{Handle, SUCCESS};

/// A context and its device, as events carry them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContextOnDevice {
    /// The context's handle, 0 for none.
    pub(crate) context: u64,
    /// The device's index.
    pub(crate) device: u8,
    /// The value of `GENERATION` when this was queried.
    generation: u32,
}

/// `CU_STREAM_PER_THREAD`; values below are the other handles of default streams.
const LAST_RESERVED_STREAM: usize = 2;

/// Counts destroyed contexts and streams: a new one may get an old handle and be on another device.
static GENERATION: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static LAST: Cell<ContextOnDevice> = const { Cell::new(ContextOnDevice { context: 0, device: 0, generation: 0 }) };
    /// The stream queried last, and its place.
    static LAST_STREAM: Cell<(u64, ContextOnDevice)> = const { Cell::new((0, ContextOnDevice { context: 0, device: 0, generation: 0 })) };
}

/// The calling thread's current place. The driver keeps the current context in a thread-local variable: querying it
/// costs a few nanoseconds, touches no stream and is allowed during a capture.
pub(crate) fn current() -> ContextOnDevice {
    let mut context = std::ptr::null_mut();
    // SAFETY: the driver's own function with a valid out-parameter.
    let result = real::current_context().map(|ask| unsafe { ask(&raw mut context) });
    if result != Some(SUCCESS) || context.is_null() {
        return ContextOnDevice::default();
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
    let place = ContextOnDevice { context: context as u64, device, generation };
    LAST.set(place);
    place
}

/// The device of a context that need not be current.
pub(crate) fn device_of(context: Handle) -> Option<i32> {
    let (push, pop) = (real::push_context()?, real::pop_context()?);
    let mut device = 0;
    let mut popped = std::ptr::null_mut();
    // SAFETY: the program itself passes this context to the driver, and the push is undone by the pop.
    unsafe {
        if push(context) != SUCCESS {
            return None;
        }
        let result = real::current_device().map(|ask| ask(&raw mut device));
        pop(&raw mut popped);
        (result == Some(SUCCESS)).then_some(device)
    }
}

/// The place where a stream's work runs: its own context, not the current one. `None` if the driver does not report
/// it.
pub(crate) fn of_stream(stream: Handle) -> Option<ContextOnDevice> {
    // The default streams are those of the current context.
    if stream as usize <= LAST_RESERVED_STREAM {
        return Some(current());
    }
    let generation = GENERATION.load(Ordering::Relaxed);
    let (last, place) = LAST_STREAM.get();
    if last == stream as u64 && place.generation == generation {
        return Some(place);
    }
    let mut context = std::ptr::null_mut();
    // SAFETY: the program itself passes this stream to the driver, and the out-parameter is valid.
    let result = real::stream_context().map(|ask| unsafe { ask(stream, &raw mut context) });
    if result != Some(SUCCESS) {
        return None;
    }
    let here = current();
    let place = if here.context == context as u64 {
        here
    } else {
        let device = u8::try_from(device_of(context)?).ok()?;
        ContextOnDevice { context: context as u64, device, generation }
    };
    LAST_STREAM.set((stream as u64, place));
    Some(place)
}

/// A stream was or is about to be destroyed: a new one may get its handle.
pub(crate) fn stream_ended() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A context was destroyed.
pub(crate) fn context_ended() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
