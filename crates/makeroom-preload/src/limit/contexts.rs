//! What contexts take for themselves, under a limit.
//!
//! No call says how much that is. NVML knows what a device has in use without a context, so it is asked before and
//! after: for what this process holds, because on a shared card others take memory in between. Where the driver does
//! not list this process, what all processes took in between is the context's, and where there is no NVML, what the new
//! context says that its card has in use; of either a context is at most [`LARGEST`]. A context that goes beyond the
//! limit is ended again and refused, as a card of that size would refuse it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::nvml::{self, Used};
use super::table::{Held, Key, table};
use super::{MOST_DEVICES, count, give_back, taken};
use crate::config::config;
use crate::driver::types::{CuResult, Device, Handle, SUCCESS};
use crate::driver::{devices, real};
use crate::hooks::table::Function;
use crate::pool;

/// What a context of a plain program takes on an H200, of which no smaller card's takes more.
const LARGEST: u64 = 527 << 20;

/// The primary context of each device that this process retained.
static PRIMARIES: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];
/// Contexts of each device.
static CONTEXTS: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];

/// What kind of context is made, and so how it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    /// By `cuCtxCreate`.
    Own,
    /// By `cuDevicePrimaryCtxRetain`.
    Primary,
    /// By `cuGreenCtxCreate`: a share of the primary one.
    Green,
}

/// The device before a context is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    device: u8,
    making: Making,
    used: Used,
    /// What this process is known to have taken.
    taken: u64,
}

/// Looks at a device on which a context is about to be made. Nothing without a limit, or where the context is there
/// already.
pub(crate) fn before(device: Device, making: Making) -> Option<Before> {
    config().limit?;
    let index = u8::try_from(device).ok()?;
    if making != Making::Own && is_primary_active(device) {
        return None;
    }
    devices::meet(index);
    Some(Before { device: index, making, used: nvml::used(index), taken: known(index) })
}

/// Whether a context that was made fits; if so it counts. Otherwise the bytes that it would have taken, and it is gone.
pub(crate) fn admit(before: Before, handle: u64) -> Result<(), u64> {
    let Some(limit) = config().limit else { return Ok(()) };
    let Before { device, making, .. } = before;
    let is_first = CONTEXTS.get(usize::from(device)).is_none_or(|count| count.load(Ordering::Relaxed) == 0);
    // Other threads may have taken memory meanwhile, which is counted already.
    let counted = known(device).saturating_sub(before.taken);
    let measured = size(before.used, nvml::used(device), counted, is_first);
    let bytes = measured.unwrap_or_else(|| used_in(handle).min(LARGEST));
    // What the pool holds unused must not be the reason.
    let fits = || count(device, bytes, limit);
    if !(fits() || pool::gives_back() && fits()) {
        undo(before, handle);
        return Err(bytes);
    }
    if making == Making::Primary
        && let Some(place) = PRIMARIES.get(usize::from(device))
    {
        place.store(handle, Ordering::Relaxed);
    }
    if let Some(contexts) = CONTEXTS.get(usize::from(device)) {
        contexts.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(table) = table() {
        let held = Held { bytes, context: handle, holds: 1, device, is_pooled: false };
        table.insert(Key::context(handle), held);
    }
    Ok(())
}

/// How large a context is by what was in use before and after it was made, less what is counted already. A figure of
/// this process is taken only if it can be one: with a context it holds something, before its first it held nothing. Otherwise somebody of another PID namespace has its number.
fn size(before: Used, after: Used, counted: u64, is_first: bool) -> Option<u64> {
    let own =
        before.by_own.filter(|&bytes| (bytes == 0) == is_first).zip(after.by_own.filter(|&bytes| bytes > 0));
    let difference = |(before, after): (u64, u64)| after.saturating_sub(before).saturating_sub(counted);
    own.map(difference).or_else(|| Some(difference(before.by_all.zip(after.by_all)?).min(LARGEST)))
}

/// What this process is known to have taken of a device.
fn known(device: u8) -> u64 {
    taken(device).map_or(0, |taken| taken.load(Ordering::Relaxed))
}

/// A context has ended: what it took, and what was taken in it.
pub(super) fn ended(handle: u64) {
    let Some(table) = table() else { return };
    let Some(gone) = table.release(Key::context(handle)) else { return };
    give_back(gone.device, gone.bytes);
    let is_last = CONTEXTS
        .get(usize::from(gone.device))
        .is_some_and(|contexts| contexts.fetch_sub(1, Ordering::Relaxed) == 1);
    let is_gone =
        |held: &Held| held.context == handle || is_last && held.is_pooled && held.device == gone.device;
    table.take_all(|_, held| is_gone(held), |held| give_back(held.device, held.bytes));
}

/// Somebody let a primary context go: it has ended if nobody holds it any more.
pub(super) fn primary_let_go(device: u8) {
    if is_primary_active(device.into()) {
        return;
    }
    let handle = PRIMARIES.get(usize::from(device)).map_or(0, |place| place.swap(0, Ordering::Relaxed));
    if handle != 0 {
        ended(handle);
    }
}

/// Forgets the contexts of the parent of a fork.
pub(super) fn reset() {
    for place in PRIMARIES.iter().chain(&CONTEXTS) {
        place.store(0, Ordering::Relaxed);
    }
}

fn is_primary_active(device: Device) -> bool {
    let (mut flags, mut is_active) = (0, 0);
    // SAFETY: the driver's own function with valid places for its answers.
    let result = real::primary_state().map(|ask| unsafe { ask(device, &raw mut flags, &raw mut is_active) });
    result == Some(SUCCESS) && is_active != 0
}

/// What a context says that its card has in use, beside what this process is known to have taken.
fn used_in(handle: u64) -> u64 {
    let (Some(current), Some(set), Some(memory_info), Some(device)) =
        (real::current_context(), real::set_context(), real::memory_info(), real::current_device())
    else {
        return 0;
    };
    let (mut free, mut total, mut before, mut index) = (0, 0, std::ptr::null_mut(), 0);
    // SAFETY: the driver's own functions with valid places for their answers; the context was just made, and the one
    // that the thread had comes back.
    let is_answered = unsafe {
        current(&raw mut before);
        let is_answered = set(handle as Handle) == SUCCESS
            && memory_info(&raw mut free, &raw mut total) == SUCCESS
            && device(&raw mut index) == SUCCESS;
        set(before);
        is_answered
    };
    let known = u8::try_from(index).map_or(0, known);
    if is_answered { (total.saturating_sub(free) as u64).saturating_sub(known) } else { 0 }
}

/// Ends a context that does not fit.
fn undo(before: Before, handle: u64) {
    let call = |function: Function, argument: u64| {
        if let Some(address) = real::address(function) {
            // SAFETY: the driver's functions that end contexts take one word, a handle or a device, and answer a number.
            let end = unsafe {
                std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn(u64) -> CuResult>(address)
            };
            // SAFETY: the context was just made and nobody knows it.
            unsafe { end(argument) };
        }
    };
    match before.making {
        Making::Own => call(Function::cuCtxDestroy_v2, handle),
        Making::Primary => call(Function::cuDevicePrimaryCtxRelease_v2, before.device.into()),
        Making::Green => call(Function::cuGreenCtxDestroy, handle),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(by_all: u64, by_own: Option<u64>) -> Used {
        Used { by_all: Some(by_all << 20), by_own: by_own.map(|bytes| bytes << 20) }
    }

    #[test]
    fn what_others_take_meanwhile_is_not_the_contexts() {
        let mib = |before, after, is_first| size(before, after, 0, is_first).map(|bytes| bytes >> 20);
        assert_eq!(mib(used(100, Some(0)), used(9000, Some(512)), true), Some(512));
        assert_eq!(mib(used(600, Some(512)), used(9000, Some(1024)), false), Some(512));
        // A share of a context that is there takes nothing more.
        assert_eq!(mib(used(600, Some(512)), used(9000, Some(512)), false), Some(0));
        // Not listed, listed without a figure, and somebody else with the same number.
        assert_eq!(mib(used(100, Some(0)), used(9000, Some(0)), true), Some(527));
        assert_eq!(mib(used(100, Some(0)), used(600, None), true), Some(500));
        assert_eq!(mib(used(100, Some(70)), used(600, Some(8000)), true), Some(500));
        assert_eq!(size(Used::default(), Used::default(), 0, true), None);
        // What another thread of this process took meanwhile.
        assert_eq!(size(used(600, Some(512)), used(1200, Some(1088)), 64 << 20, false), Some(512 << 20));
    }
}
