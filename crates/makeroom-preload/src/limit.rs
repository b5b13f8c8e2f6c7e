//! `MAKEROOM_LIMIT`: this process sees a smaller card.
//!
//! Device memory is counted as the program asks for it. What would go beyond the limit is refused with the driver's
//! own error, without asking the driver; what the program asks about memory is answered accordingly:
//!
//! ```text
//! total = min(limit, the card's)      free = min(limit − taken, the card's free)
//! ```
//!
//! Sizes of what is freed are found in a table of 64 parts, each under a spin lock that is held for a few
//! instructions, never across a call, and is open again in a forked child. Without a limit nothing here is touched.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use makeroom_trace::room::EventKind;

use crate::config::config;
use crate::driver::types;
use crate::hooks::call::Done;
use crate::record::event::RawEvent;
use crate::record::memory::Lazy;

static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Whether so many bytes may be taken; if so they are counted. The driver is asked afterwards.
#[inline]
pub(crate) fn reserve(bytes: u64) -> bool {
    let Some(limit) = config().limit else { return true };
    TAKEN
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            taken.checked_add(bytes).filter(|&sum| sum <= limit)
        })
        .is_ok()
}

/// The driver refused what was reserved.
#[inline]
pub(crate) fn cancel(bytes: u64) {
    if config().limit.is_some() {
        give_back(bytes);
    }
}

fn give_back(bytes: u64) {
    let _ =
        TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| Some(taken.saturating_sub(bytes)));
}

/// What `cuMemCreate` takes of the device: nothing if the memory lies on the host.
///
/// # Safety
///
/// `properties` is null or what `cuMemCreate` was given.
pub(crate) unsafe fn device_bytes(bytes: usize, properties: *const c_void) -> usize {
    // SAFETY: the driver will read the same structure; the location lies behind two words of four bytes.
    if config().limit.is_some() && unsafe { types::location(properties, 8) }.0 { bytes } else { 0 }
}

/// Remembers what an allocation took, and counts what a free gives back.
#[inline]
pub(crate) fn book(event: &RawEvent) {
    if config().limit.is_none() || event.result != 0 {
        return;
    }
    let Some(sizes) = SIZES.get() else { return };
    match EventKind::from_number(event.kind) {
        EventKind::DeviceAlloc | EventKind::PitchedAlloc | EventKind::StreamAlloc => {
            sizes.insert(event.address, event.size);
        }
        EventKind::PhysicalCreate if event.extra == 0 => sizes.insert(!event.address, event.size),
        EventKind::DeviceFree | EventKind::StreamFree => give_back(sizes.remove(event.address)),
        EventKind::PhysicalRelease => give_back(sizes.remove(!event.address)),
        _ => {}
    }
}

/// Answers a question about memory as a smaller card would.
///
/// # Safety
///
/// Both are null or out-parameters of a driver's function that ended so.
pub(crate) unsafe fn shrink<T: Figure>(free: *mut T, total: *mut T, done: Done) {
    let Some(limit) = config().limit else { return };
    if !done.is_ok() {
        return;
    }
    let left = limit.saturating_sub(TAKEN.load(Ordering::Relaxed));
    // SAFETY: the driver succeeded, so what is not null is valid and filled.
    unsafe {
        if let Some(free) = free.as_mut() {
            *free = (*free).at_most(left);
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
}

impl Figure for usize {
    fn at_most(self, limit: u64) -> Self {
        self.min(limit as Self)
    }
}

impl Figure for u32 {
    fn at_most(self, limit: u64) -> Self {
        self.min(Self::try_from(limit).unwrap_or(Self::MAX))
    }
}

/// Forgets what the parent of a fork took.
pub(crate) fn reset() {
    TAKEN.store(0, Ordering::Relaxed);
    if let Some(sizes) = SIZES.if_made() {
        for part in &sizes.parts {
            part.clear();
        }
    }
}

const PARTS: usize = 64;
const ENTRIES: usize = 4096;

/// Sizes by address.
struct Sizes {
    parts: [Part; PARTS],
}

/// One part of the table: open addressing in a ring, with entries moved back when one is removed, so that a search
/// ends at the first empty entry.
struct Part {
    is_locked: AtomicBool,
    entries: UnsafeCell<[(u64, u64); ENTRIES]>,
}

// SAFETY: the entries are touched only by whoever holds the lock.
unsafe impl Sync for Part {}

// SAFETY: all zeros are an open lock and empty entries.
static SIZES: Lazy<Sizes> = unsafe { Lazy::new() };

impl Sizes {
    fn part(&self, address: u64) -> Option<&Part> {
        self.parts.get(spread(address) as usize % PARTS)
    }

    /// Remembers a size. A full part forgets it: the limit then counts it as taken for good.
    fn insert(&self, address: u64, size: u64) {
        if let Some(part) = self.part(address) {
            part.with(|entries| {
                if let Some(entry) =
                    probe(address).find(|&index| entries.get(index).is_some_and(|entry| entry.0 == 0))
                    && let Some(entry) = entries.get_mut(entry)
                {
                    *entry = (address, size);
                }
            });
        }
    }

    /// The size of what is freed, 0 if unknown; it is forgotten.
    fn remove(&self, address: u64) -> u64 {
        self.part(address).map_or(0, |part| part.with(|entries| take(entries, address)))
    }
}

impl Part {
    fn with<T>(&self, work: impl FnOnce(&mut [(u64, u64); ENTRIES]) -> T) -> T {
        while self.is_locked.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: the lock is held, so nobody else touches the entries.
        let result = work(unsafe { &mut *self.entries.get() });
        self.is_locked.store(false, Ordering::Release);
        result
    }

    fn clear(&self) {
        // In a forked child: the lock may have been held by a thread that is not there.
        self.is_locked.store(false, Ordering::Relaxed);
        self.with(|entries| entries.fill((0, 0)));
    }
}

fn spread(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

fn probe(address: u64) -> impl Iterator<Item = usize> {
    let home = (spread(address) as usize / PARTS) % ENTRIES;
    (0..ENTRIES).map(move |step| (home + step) % ENTRIES)
}

fn take(entries: &mut [(u64, u64); ENTRIES], address: u64) -> u64 {
    let entry = |entries: &[(u64, u64); ENTRIES], index: usize| entries.get(index).copied().unwrap_or((0, 0));
    let Some(found) = probe(address)
        .take_while(|&index| entry(entries, index).0 != 0)
        .find(|&i| entry(entries, i).0 == address)
    else {
        return 0;
    };
    let size = entry(entries, found).1;
    // Whatever follows without a gap and may lie earlier moves into the hole.
    let mut hole = found;
    for step in 1..ENTRIES {
        let index = (found + step) % ENTRIES;
        let moved = entry(entries, index);
        if moved.0 == 0 {
            break;
        }
        let wanted = probe(moved.0).next().unwrap_or(index);
        let distance = |from: usize, to: usize| (to + ENTRIES - from) % ENTRIES;
        if distance(wanted, index) >= distance(hole, index) {
            if let Some(place) = entries.get_mut(hole) {
                *place = moved;
            }
            hole = index;
        }
    }
    if let Some(place) = entries.get_mut(hole) {
        *place = (0, 0);
    }
    size
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn sizes_are_found_again_after_many_removals() {
        let sizes = SIZES.get().unwrap();
        let mut expected = HashMap::new();
        let mut state = 1_u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let address = ((state >> 40) % 3000 + 1) << 9;
            if let Some(size) = expected.remove(&address) {
                assert_eq!(sizes.remove(address), size);
            } else {
                sizes.insert(address, state);
                expected.insert(address, state);
            }
        }
        for (address, size) in expected {
            assert_eq!(sizes.remove(address), size);
            assert_eq!(sizes.remove(address), 0);
        }
    }
}
