//! `MAKEROOM_LIMIT`: this process sees smaller cards.
//!
//! What the process takes of a device is counted: what it asks for, and what its contexts take for themselves
//! ([`contexts`]). What would go beyond the limit is refused with the driver's own error, without asking the driver;
//! what the program asks about memory, of the driver or of NVML ([`management`]), is answered accordingly:
//!
//! ```text
//! total = min(limit, the card's)      free = min(limit − taken, the card's free)
//! ```
//!
//! Memory counts until its last hold is gone: a block until it is freed, physical memory until nobody has its handle
//! and nothing is mapped to it, all of a context's memory until the context ends, stream-ordered memory until the
//! device's last context does. Not counted are managed memory, which moves between host and device, what graphs take
//! when they are launched, and code that is loaded after a context was made.
//!
//! Without a limit nothing here is touched.

pub(crate) mod contexts;
pub(crate) mod management;
mod nvml;
mod table;

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use makeroom_trace::room::EventKind;

use crate::config::config;
use crate::driver::place;
use crate::driver::types::{self, Device};
use crate::hooks::call::Done;
use crate::pool;
use crate::record::event::RawEvent;
use table::{Held, Key, table};

/// Devices that are counted; there are never more.
const MOST_DEVICES: usize = 64;
/// Physical memory is mapped in multiples of this.
const PAGE: usize = 2 << 20;

static TAKEN: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];

/// Memory that was counted before the driver was asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    device: u8,
    bytes: u64,
}

fn taken(device: u8) -> Option<&'static AtomicU64> {
    TAKEN.get(usize::from(device))
}

/// Counts bytes of a device unless they go beyond the limit.
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

/// Whether so many bytes may be taken, of the calling thread's device if no other is said; if so they are counted. The
/// driver is asked afterwards.
#[inline]
pub(crate) fn reserve(bytes: u64, device: Option<Device>) -> Option<Reservation> {
    let Some(limit) = config().limit else { return uncounted() };
    let device = device.map_or_else(|| place::current().device, |device| u8::try_from(device).unwrap_or(0));
    count(device, bytes, limit).then_some(Reservation { device, bytes })
}

/// A call that does not count.
#[inline]
#[allow(clippy::unnecessary_wraps, reason = "it stands beside calls that may be refused")]
pub(crate) fn uncounted() -> Option<Reservation> {
    Some(Reservation { device: 0, bytes: 0 })
}

/// [`reserve`] for an array. How large it is stands in a structure that the driver has not seen yet: it is read only
/// under a limit.
#[inline]
pub(crate) fn reserve_array(bytes: impl FnOnce() -> u64) -> Option<Reservation> {
    if config().limit.is_some() { reserve(bytes(), None) } else { uncounted() }
}

/// The driver refused what was reserved.
#[inline]
pub(crate) fn cancel(reservation: Reservation) {
    if reservation.bytes > 0 {
        give_back(reservation.device, reservation.bytes);
    }
}

/// The driver gave what was reserved: remembers for what it counts.
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
    table.insert(key, Held { bytes, context: ends_with, holds: 1, device, is_pooled });
}

/// Where `cuMemCreate` takes memory, and how much of a device: nothing if the memory lies on the host.
///
/// # Safety
///
/// `properties` is null or what `cuMemCreate` was given.
pub(crate) unsafe fn reserve_physical(bytes: usize, properties: *const c_void) -> Option<Reservation> {
    if config().limit.is_none() {
        return uncounted();
    }
    // SAFETY: the driver will read the same structure; the location lies behind two words of four bytes.
    let (is_device, device) = unsafe { types::location(properties, 8) };
    reserve(if is_device { bytes as u64 } else { 0 }, Some(device))
}

/// Counts what a call that succeeded gave back, or holds once more.
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
            let mapping = Held { bytes: event.extra, holds: 1, ..Held::default() };
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

/// What is left of a device's limit.
fn left(device: u8, limit: u64) -> u64 {
    limit.saturating_sub(taken(device).map_or(0, |taken| taken.load(Ordering::Relaxed)))
}

/// Answers a question about memory as a smaller card would. What the pool holds unused is free: whoever asks for it
/// gets it.
///
/// # Safety
///
/// Both are null or out-parameters of a driver's function that ended so.
pub(crate) unsafe fn shrink<T: Figure>(free: *mut T, total: *mut T, done: Done) {
    if !done.is_ok() {
        return;
    }
    let device = place::current().device;
    let limit = config().limit.unwrap_or(u64::MAX);
    // SAFETY: the driver succeeded, so what is not null is valid and filled.
    unsafe {
        if let Some(free) = free.as_mut() {
            *free = (*free).at_most(left(device, limit)).plus(pool::cached(device));
        }
        if let Some(total) = total.as_mut() {
            *total = (*total).at_most(limit);
        }
    }
}

/// A size in the driver's old and new forms.
pub(crate) trait Figure: Copy {
    /// The size, or the limit if that is less.
    fn at_most(self, limit: u64) -> Self;

    /// The size with so much more.
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

/// Forgets what the parent of a fork took.
pub(crate) fn reset() {
    for taken in &TAKEN {
        taken.store(0, Ordering::Relaxed);
    }
    table::clear();
    contexts::reset();
}
