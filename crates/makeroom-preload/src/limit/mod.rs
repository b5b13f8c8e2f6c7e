//! `MAKEROOM_LIMIT`: makes each card look smaller to this process.
//!
//! The process's use of each device is counted: its allocations, and the overhead of its contexts ([`contexts`]). An
//! allocation beyond the limit fails with the driver's own error, without calling the driver. Memory queries, to the
//! driver or to NVML ([`management`]), return matching figures:
//!
//! ```text
//! total = min(limit, the card's)      free = min(limit − taken, the card's free)
//! ```
//!
//! Memory counts until its last reference is gone: a block until it is freed, physical memory until its handle is
//! released and it is unmapped, all memory of a context until the context ends, and stream-ordered memory until the
//! device's last context ends. Not counted: managed memory, which migrates between host and device; memory that
//! graphs take at launch; and code loaded after a context was created.
//!
//! Without a limit nothing is counted.

pub(crate) mod contexts;
pub(crate) mod management;
mod nvml;
mod table;

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use makeroom_trace::room::EventKind;

use crate::config::config;
use crate::driver::done::Done;
use crate::driver::place;
use crate::driver::types::{self, Device};
use crate::record::event::RawEvent;
use table::{CountedMemory, Key, table};

/// Maximum number of devices.
const MOST_DEVICES: usize = 64;
/// Granularity of physical mappings.
const PAGE: usize = 2 << 20;

static TAKEN: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];

/// Memory counted before the driver is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    device: u8,
    bytes: u64,
}

fn taken(device: u8) -> Option<&'static AtomicU64> {
    TAKEN.get(usize::from(device))
}

/// Counts bytes of a device, unless they exceed the limit.
fn count(device: u8, bytes: u64, limit: u64) -> bool {
    let add = |taken: u64| taken.checked_add(bytes).filter(|&sum| sum <= limit);
    taken(device).is_none_or(|taken| taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok())
}

fn give_back(device: u8, bytes: u64) {
    if let Some(taken) = taken(device) {
        let less = |taken: u64| Some(taken.saturating_sub(bytes));
        let _ = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Counts bytes against the limit, of the calling thread's device unless another is given. `None` if they exceed it.
/// The driver is called afterwards.
#[inline]
pub(crate) fn reserve(bytes: u64, device: Option<Device>) -> Option<Reservation> {
    let Some(limit) = config().limit else { return uncounted() };
    let device = device.map_or_else(|| place::current().device, |device| u8::try_from(device).unwrap_or(0));
    count(device, bytes, limit).then_some(Reservation { device, bytes })
}

/// The reservation of a call that does not count.
#[inline]
#[allow(clippy::unnecessary_wraps, reason = "it has the same signature as calls that can fail")]
pub(crate) fn uncounted() -> Option<Reservation> {
    Some(Reservation { device: 0, bytes: 0 })
}

/// [`reserve`] for an array. Its size is in a structure that the driver has not validated yet, so it is read only
/// under a limit.
#[inline]
pub(crate) fn reserve_array(bytes: impl FnOnce() -> u64) -> Option<Reservation> {
    if config().limit.is_some() { reserve(bytes(), None) } else { uncounted() }
}

/// Undoes a reservation after the driver failed the call.
#[inline]
pub(crate) fn cancel(reservation: Reservation) {
    if reservation.bytes > 0 {
        give_back(reservation.device, reservation.bytes);
    }
}

/// Records what a reservation was for, after the driver succeeded.
#[inline]
pub(crate) fn keep(reservation: Reservation, event: &RawEvent) {
    if reservation.bytes == 0 {
        return;
    }
    let Some(table) = table() else { return };
    let (key, ends_with, is_pooled) = match EventKind::from_number(event.kind) {
        EventKind::PhysicalCreate => (Key::physical(event.address), 0, false),
        EventKind::StreamAlloc => (Key::memory(event.address), 0, true),
        _ => (Key::memory(event.address), place::current().context, false),
    };
    let Reservation { device, bytes } = reservation;
    table.insert(key, CountedMemory { bytes, context: ends_with, holds: 1, device, is_pooled });
}

/// [`reserve`] for `cuMemCreate`. Host memory counts as zero bytes.
///
/// # Safety
///
/// `properties` is null or was passed to `cuMemCreate`.
pub(crate) unsafe fn reserve_physical(bytes: usize, properties: *const c_void) -> Option<Reservation> {
    if config().limit.is_none() {
        return uncounted();
    }
    // SAFETY: the driver will read the same structure; the location follows two four-byte fields.
    let (is_device, device) = unsafe { types::location(properties, 8) };
    reserve(if is_device { bytes as u64 } else { 0 }, Some(device))
}

/// Updates the account for a successful call that releases memory or adds a reference.
#[inline]
pub(crate) fn book(event: &RawEvent) {
    if config().limit.is_some() && event.result == 0 {
        book_limited(event);
    }
}

#[cold]
fn book_limited(event: &RawEvent) {
    let Some(table) = table() else { return };
    let release = |key: Key| {
        if let Some(gone) = table.release(key) {
            give_back(gone.device, gone.bytes);
        }
    };
    match EventKind::from_number(event.kind) {
        EventKind::DeviceFree | EventKind::StreamFree | EventKind::ArrayFree | EventKind::MipmappedFree => {
            release(Key::memory(event.address));
        }
        EventKind::PhysicalRetain | EventKind::ExternalImport => table.hold(Key::physical(event.address)),
        EventKind::PhysicalRelease => release(Key::physical(event.address)),
        EventKind::Map => {
            table.hold(Key::physical(event.extra));
            let mapping = CountedMemory { bytes: event.extra, holds: 1, ..CountedMemory::default() };
            table.insert(Key::mapping(event.address), mapping);
        }
        EventKind::Unmap => {
            let end = event.address.saturating_add(event.size);
            for address in (event.address..end).step_by(PAGE) {
                if let Some(mapping) = table.release(Key::mapping(address)) {
                    release(Key::physical(mapping.bytes));
                }
            }
        }
        EventKind::ContextDestroy => contexts::ended(event.context),
        EventKind::PrimaryRelease | EventKind::PrimaryReset => contexts::primary_let_go(event.device),
        _ => {}
    }
}

/// Memory left under the limit of a device, if there is a limit.
pub(crate) fn available(device: Device) -> u64 {
    let device = u8::try_from(device).unwrap_or(0);
    config().limit.map_or(u64::MAX, |limit| left(device, limit))
}

/// Memory left under a device's limit.
fn left(device: u8, limit: u64) -> u64 {
    limit.saturating_sub(taken(device).map_or(0, |taken| taken.load(Ordering::Relaxed)))
}

/// Adjusts the result of a memory query to the limit. Memory that the pool has `cached` on the device counts as free,
/// because the program can get it.
///
/// # Safety
///
/// Both are null or out-parameters of a driver call that returned `done`.
pub(crate) unsafe fn shrink<T: Figure>(free: *mut T, total: *mut T, cached: impl Fn(u8) -> u64, done: Done) {
    if !done.is_ok() {
        return;
    }
    let device = place::current().device;
    let limit = config().limit.unwrap_or(u64::MAX);
    // SAFETY: the call succeeded, so non-null pointers are valid and filled.
    unsafe {
        if let Some(free) = free.as_mut() {
            *free = (*free).at_most(left(device, limit)).plus(cached(device));
        }
        if let Some(total) = total.as_mut() {
            *total = (*total).at_most(limit);
        }
    }
}

/// A size in the driver's old and new APIs.
pub(crate) trait Figure: Copy {
    /// The smaller of the size and the limit.
    fn at_most(self, limit: u64) -> Self;

    /// The size plus `bytes`.
    fn plus(self, bytes: u64) -> Self;
}

impl Figure for usize {
    fn at_most(self, limit: u64) -> Self {
        self.min(limit as Self)
    }

    fn plus(self, bytes: u64) -> Self {
        self.saturating_add(bytes as Self)
    }
}

impl Figure for u32 {
    fn at_most(self, limit: u64) -> Self {
        self.min(Self::try_from(limit).unwrap_or(Self::MAX))
    }

    fn plus(self, bytes: u64) -> Self {
        self.saturating_add(Self::try_from(bytes).unwrap_or(Self::MAX))
    }
}

/// Resets the account in a forked child.
pub(crate) fn reset() {
    for taken in &TAKEN {
        taken.store(0, Ordering::Relaxed);
    }
    table::clear();
    contexts::reset();
}
