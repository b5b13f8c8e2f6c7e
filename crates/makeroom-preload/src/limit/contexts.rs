//! Accounts for the overhead of contexts under a limit.
//!
//! No call reports that overhead. NVML can report a device's usage without a context, so it is queried before and
//! after, for this process alone, because on a shared card other processes allocate in between. If the driver does
//! not list this process, the growth of all processes is attributed to the context; without NVML, the usage that the
//! new context reports for its card. Both are capped at [`LARGEST`]. A context that exceeds the limit is destroyed
//! again and the call fails, as on a card of that size.

use std::sync::atomic::{AtomicU64, Ordering};

use super::nvml::{self, Used};
use super::table::{CountedMemory, Key, table};
use super::{MOST_DEVICES, count, give_back, taken};
use crate::config::config;
use crate::driver::function::Function;
use crate::driver::types::{CuResult, Device, Handle, SUCCESS};
use crate::driver::{devices, real};

/// The context overhead of a plain program on an H200; smaller cards need no more.
const LARGEST: u64 = 527 << 20;

/// The primary context that this process retained on each device.
static PRIMARIES: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];
/// Number of contexts on each device.
static CONTEXTS: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];

/// The kind of context being created, which decides how it is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    /// By `cuCtxCreate`.
    Own,
    /// By `cuDevicePrimaryCtxRetain`.
    Primary,
    /// By `cuGreenCtxCreate`: a partition of the primary one.
    Green,
}

/// The device before a context is created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    device: u8,
    making: Making,
    used: Used,
    /// Memory that this process is known to hold.
    taken: u64,
}

/// Measures a device before a context is created on it. `None` without a limit, or if the context already exists.
pub(crate) fn before(device: Device, making: Making) -> Option<Before> {
    config().limit?;
    let index = u8::try_from(device).ok()?;
    if making != Making::Own && is_primary_active(device) {
        return None;
    }
    devices::meet(index);
    Some(Before { device: index, making, used: nvml::used(index), taken: known(index) })
}

/// Counts a new context if it fits, if need be after `release_cache` has released cached memory. Otherwise destroys it and returns its size in bytes.
pub(crate) fn admit(before: Before, handle: u64, release_cache: impl FnOnce() -> bool) -> Result<(), u64> {
    let Some(limit) = config().limit else { return Ok(()) };
    let Before { device, making, .. } = before;
    let is_first = CONTEXTS.get(usize::from(device)).is_none_or(|count| count.load(Ordering::Relaxed) == 0);
    // Memory that other threads allocated in the meantime is already counted.
    let counted = known(device).saturating_sub(before.taken);
    let measured = size(before.used, nvml::used(device), counted, is_first);
    let bytes = measured.unwrap_or_else(|| used_in(handle).min(LARGEST));
    // Cached memory must not make it fail.
    let fits = || count(device, bytes, limit);
    if !(fits() || release_cache() && fits()) {
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
        let held = CountedMemory { bytes, context: handle, holds: 1, device, is_pooled: false };
        table.insert(Key::context(handle), held);
    }
    Ok(())
}

/// Size of a context from the usage before and after it was created, minus memory already counted. This process's
/// figure is used only if it is plausible: nonzero with a context, zero before the first. Otherwise it belongs to a
/// process with the same PID in another PID namespace.
fn size(before: Used, after: Used, counted: u64, is_first: bool) -> Option<u64> {
    let own =
        before.by_own.filter(|&bytes| (bytes == 0) == is_first).zip(after.by_own.filter(|&bytes| bytes > 0));
    let difference = |(before, after): (u64, u64)| after.saturating_sub(before).saturating_sub(counted);
    own.map(difference).or_else(|| Some(difference(before.by_all.zip(after.by_all)?).min(LARGEST)))
}

/// Memory of a device that this process is known to hold.
fn known(device: u8) -> u64 {
    taken(device).map_or(0, |taken| taken.load(Ordering::Relaxed))
}

/// A context ended: releases its overhead and the memory allocated in it.
pub(super) fn ended(handle: u64) {
    let Some(table) = table() else { return };
    let Some(gone) = table.release(Key::context(handle)) else { return };
    give_back(gone.device, gone.bytes);
    let is_last = CONTEXTS
        .get(usize::from(gone.device))
        .is_some_and(|contexts| contexts.fetch_sub(1, Ordering::Relaxed) == 1);
    let is_gone = |held: &CountedMemory| {
        held.context == handle || is_last && held.is_pooled && held.device == gone.device
    };
    table.take_all(|_, held| is_gone(held), |held| give_back(held.device, held.bytes));
}

/// A primary context was released once: it has ended if no retain is left.
pub(super) fn primary_let_go(device: u8) {
    if is_primary_active(device.into()) {
        return;
    }
    let handle = PRIMARIES.get(usize::from(device)).map_or(0, |place| place.swap(0, Ordering::Relaxed));
    if handle != 0 {
        ended(handle);
    }
}

/// Resets the contexts in a forked child.
pub(super) fn reset() {
    for place in PRIMARIES.iter().chain(&CONTEXTS) {
        place.store(0, Ordering::Relaxed);
    }
}

fn is_primary_active(device: Device) -> bool {
    let (mut flags, mut is_active) = (0, 0);
    // SAFETY: the driver's own function with valid out-parameters.
    let result = real::primary_state().map(|ask| unsafe { ask(device, &raw mut flags, &raw mut is_active) });
    result == Some(SUCCESS) && is_active != 0
}

/// The usage that a context reports for its card, minus the memory that this process is known to hold.
fn used_in(handle: u64) -> u64 {
    let (Some(current), Some(set), Some(memory_info), Some(device)) =
        (real::current_context(), real::set_context(), real::memory_info(), real::current_device())
    else {
        return 0;
    };
    let (mut free, mut total, mut before, mut index) = (0, 0, std::ptr::null_mut(), 0);
    // SAFETY: the driver's own functions with valid out-parameters; the context was just created, and the thread's
    // previous one is restored.
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

/// Destroys a context that does not fit.
fn undo(before: Before, handle: u64) {
    let call = |function: Function, argument: u64| {
        if let Some(address) = real::address(function) {
            // SAFETY: the driver's functions that destroy contexts take one word, a handle or a device, and return an
            // `int`.
            let end = unsafe {
                std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn(u64) -> CuResult>(address)
            };
            // SAFETY: the context was just created, and the program has not received it.
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
        // A partition of an existing context takes nothing more.
        assert_eq!(mib(used(600, Some(512)), used(9000, Some(512)), false), Some(0));
        // Not listed, listed without a figure, and another process with the same PID.
        assert_eq!(mib(used(100, Some(0)), used(9000, Some(0)), true), Some(527));
        assert_eq!(mib(used(100, Some(0)), used(600, None), true), Some(500));
        assert_eq!(mib(used(100, Some(70)), used(600, Some(8000)), true), Some(500));
        assert_eq!(size(Used::default(), Used::default(), 0, true), None);
        // Memory that another thread of this process allocated in the meantime.
        assert_eq!(size(used(600, Some(512)), used(1200, Some(1088)), 64 << 20, false), Some(512 << 20));
    }
}
