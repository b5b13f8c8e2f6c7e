//! Watches the pool's own use of the device: counts it against the limit, records it, and keeps its address ranges in
//! an append-only array that is read without a lock.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use makeroom_core::Address;
use makeroom_pool::{Piece, Watcher};
use makeroom_trace::room::EventKind;

use crate::clock;
use crate::driver::capture;
use crate::driver::types::SUCCESS;
use crate::event::{Moment, record};
use crate::limit::{self, Reservation};
use crate::record::event::RawEvent;

/// More ranges than the pools of one process ever reserve.
const MOST_RANGES: usize = 1024;

/// An address range reserved by a pool, and its device.
struct Range {
    start: AtomicU64,
    bytes: AtomicU64,
    device: AtomicU8,
}

static RANGES: [Range; MOST_RANGES] =
    [const { Range { start: AtomicU64::new(0), bytes: AtomicU64::new(0), device: AtomicU8::new(0) } };
        MOST_RANGES];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The device whose pool an address belongs to. Ranges are kept for good, so the result stays valid.
#[inline]
pub(super) fn device_of(address: u64) -> Option<u8> {
    let count = COUNT.load(Ordering::Relaxed).min(MOST_RANGES);
    let lies_in = |range: &&Range| {
        // The length is written last, with release: once it is visible, so is the start.
        let bytes = range.bytes.load(Ordering::Acquire);
        address.wrapping_sub(range.start.load(Ordering::Relaxed)) < bytes
    };
    Some(RANGES.iter().take(count).find(lies_in)?.device.load(Ordering::Relaxed))
}

/// Whether an address belongs to the pool.
#[inline]
pub(crate) fn holds(address: u64) -> bool {
    device_of(address).is_some()
}

/// Whether some ranges did not fit into the array, so that [`holds`] may miss an address.
pub(super) fn is_overfull() -> bool {
    COUNT.load(Ordering::Relaxed) > MOST_RANGES
}

/// The pool numbers its own handles; this prefix keeps them apart from the program's in a recording.
const OWN_HANDLES: u64 = 0x6d << 48;

/// Watches the pool of one device, or the host pool that it spills to.
#[derive(Debug)]
pub(crate) struct Watch {
    device: i32,
    is_host: bool,
    /// The reservation under the limit, while the driver is called.
    allowed: Mutex<Option<Reservation>>,
    /// Whether other devices may know memory by its physical addresses.
    may_be_registered: fn() -> bool,
}

impl Watch {
    pub(crate) fn new(device: i32, is_host: bool) -> Self {
        Self { device, is_host, allowed: Mutex::new(None), may_be_registered: || false }
    }

    /// For memory that moves, with what is asked before.
    pub(crate) fn of_pages(device: i32, is_host: bool, may_be_registered: fn() -> bool) -> Self {
        Self { may_be_registered, ..Self::new(device, is_host) }
    }

    fn allowed(&self) -> MutexGuard<'_, Option<Reservation>> {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, event: RawEvent) {
        record(event.on_device(self.device), SUCCESS, Moment::Before(clock::monotonic_ns()));
    }

    fn handle(&self, piece: Piece) -> u64 {
        // The pool's handles have 39 bits: the arena's number, and the index in it. Those of pages have one bit more.
        let place = (self.device as u64) << 41 | u64::from(self.is_host) << 40;
        OWN_HANDLES | place | piece.handle.0 & ((1 << 40) - 1)
    }
}

impl Watcher for Watch {
    fn reserved(&self, address: Address, bytes: u64) {
        // If another thread sees the new count first, the entry is empty, and nothing in the range is handed out yet.
        let index = COUNT.fetch_add(1, Ordering::Relaxed);
        if let Some(range) = RANGES.get(index) {
            range.device.store(u8::try_from(self.device).unwrap_or(u8::MAX), Ordering::Relaxed);
            range.start.store(address.0, Ordering::Relaxed);
            range.bytes.store(bytes, Ordering::Release);
        }
    }

    fn may_take(&self, bytes: u64) -> bool {
        if self.is_host {
            return true;
        }
        let reservation = limit::reserve(bytes, Some(self.device));
        *self.allowed() = reservation;
        reservation.is_some()
    }

    fn available(&self) -> u64 {
        limit::available(self.device)
    }

    fn unless_capturing(&self, work: &mut dyn FnMut()) {
        capture::unless_open(work);
    }

    fn may_be_registered(&self) -> bool {
        (self.may_be_registered)()
    }

    fn was_refused(&self, _bytes: u64) {
        if let Some(reservation) = self.allowed().take() {
            limit::cancel(reservation);
        }
    }

    fn gave_back(&self, piece: Piece) {
        self.note(RawEvent::new(EventKind::PhysicalRelease).at(self.handle(piece)));
    }

    fn took(&self, piece: Piece) {
        let event = RawEvent::new(EventKind::PhysicalCreate)
            .at(self.handle(piece))
            .size(piece.size)
            .extra(u32::from(self.is_host));
        if let Some(reservation) = self.allowed().take() {
            limit::keep(reservation, &event);
        }
        self.note(event);
    }

    fn mapped(&self, address: Address, piece: Piece) {
        self.note(RawEvent::new(EventKind::Map).at(address.0).size(piece.size).extra(self.handle(piece)));
    }

    fn unmapped(&self, address: Address, piece: Piece) {
        self.note(RawEvent::new(EventKind::Unmap).at(address.0).size(piece.size));
    }
}

#[cfg(test)]
mod tests {
    use makeroom_pool::Handle;

    use super::*;

    #[test]
    fn no_two_handles_have_one_name() {
        let mut names = std::collections::HashSet::new();
        for (device, is_host) in [(0, false), (0, true), (1, false), (63, true)] {
            for handle in [0, 1, 1 << 32, 64 << 32, 64 << 32 | 1, 64 << 32 | 0xffff_ffff] {
                let piece = Piece { handle: Handle(handle), size: 1 };
                let name = Watch::new(device, is_host).handle(piece);
                assert_eq!(name >> 48, OWN_HANDLES >> 48, "{name:#x}");
                assert!(names.insert(name), "{device} {is_host} {handle:#x}");
            }
        }
    }
}
