//! The registry of per-thread ring buffers: threads claim a ring with a compare-and-swap, the writer frees it.
//!
//! A thread claims a ring at its first event and leaves it at thread exit, through a `pthread` key. Unlike a
//! thread-local with a destructor, the pointer stays readable until the thread is gone, so calls from other
//! destructors are recorded too (they claim a ring again). The writer frees a ring once it is empty.
//!
//! A thread whose ring is full leaves it the same way and claims another: the writer is slow while it reads the
//! symbols of a large library for its first stacks, and programs allocate fast when they start.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use super::event::{RawEvent, SAMPLE};
use super::memory::zeroed_pages;
use super::ring::{Filling, Ring};
use super::{lost, wake};
use crate::notices::{Notice, raise};
use crate::{clock, cost};

/// Maximum number of concurrent rings.
const MOST_RINGS: usize = 1024;
/// Full rings that may wait for the writer: 16 MiB of events.
const MOST_FILLED: usize = 64;
/// How long a hook waits for space in its ring before it drops an event.
const LONGEST_WAIT_NS: u64 = 2_000_000;
/// How long a thread's first hook waits for a ring, if all are claimed, before it gives up.
const LONGEST_WAIT_FOR_RING_NS: u64 = 20_000_000;
/// Wake the writer after this many thread exits: it looks for left rings only when it runs.
const ENDED_THREADS_PER_WAKE: u32 = 64;

static RINGS: [AtomicPtr<Ring>; MOST_RINGS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_RINGS];
/// The `pthread` key whose destructor runs at thread exit, plus one; 0 before it is created.
static KEY: AtomicU32 = AtomicU32::new(0);
/// Threads that exited.
static ENDED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    // Const-initialized and without a destructor, so it can be read at any point in a thread's life.
    static OWN: Cell<*const Ring> = const { Cell::new(std::ptr::null()) };
}

/// Sends an event to the writer. Waits briefly if the ring is full, then drops the event and counts it.
pub(crate) fn send(event: &RawEvent) {
    if event.kind != SAMPLE {
        cost::of_event();
    }
    let Some(ring) = own() else {
        lost::count_without_ring();
        return;
    };
    match ring.push(event) {
        Ok(Filling::Fine) => {}
        Ok(Filling::Half) => wake::wake(),
        Err(_) => push_elsewhere(ring, event),
    }
}

/// The ring is full: continues in another, or waits if too many are full.
#[cold]
fn push_elsewhere(ring: &'static Ring, event: &RawEvent) {
    wake::wake();
    let filled = rings().filter(|(_, ring)| ring.is_left.load(Ordering::Relaxed)).count();
    let thread = ring.thread.load(Ordering::Relaxed);
    let next =
        if filled < MOST_FILLED { RINGS.iter().find_map(|place| try_take(place, thread)) } else { None };
    match next {
        Some(next) if next.push(event).is_ok() => {
            OWN.set(next);
            set_value_of_key(next);
            ring.is_left.store(true, Ordering::Release);
        }
        _ => wait_and_push(ring, event),
    }
}

fn wait_and_push(ring: &Ring, event: &RawEvent) {
    let start = clock::monotonic_ns();
    while clock::monotonic_ns().wrapping_sub(start) < LONGEST_WAIT_NS {
        std::thread::sleep(Duration::from_micros(50));
        if ring.push(event).is_ok() {
            return;
        }
    }
    ring.dropped.fetch_add(1, Ordering::Relaxed);
}

/// The calling thread's ring.
#[inline]
pub(crate) fn own() -> Option<&'static Ring> {
    let ring = OWN.get();
    // SAFETY: a ring is never unmapped, and the pointer is cleared when the thread leaves the ring.
    unsafe { ring.as_ref() }.or_else(take)
}

#[cold]
fn take() -> Option<&'static Ring> {
    // SAFETY: `gettid` has no preconditions.
    let thread = unsafe { libc::gettid() } as u32;
    let find = || RINGS.iter().find_map(|place| try_take(place, thread));
    let ring = find().or_else(|| wait_for_left_rings(find));
    if let Some(ring) = ring {
        OWN.set(ring);
        set_value_of_key(ring);
    } else {
        raise(Notice::ThreadsFull);
    }
    ring
}

/// All rings are claimed: wakes the writer to free those of exited threads.
#[cold]
fn wait_for_left_rings(find: impl Fn() -> Option<&'static Ring>) -> Option<&'static Ring> {
    let start = clock::monotonic_ns();
    while clock::monotonic_ns().wrapping_sub(start) < LONGEST_WAIT_FOR_RING_NS {
        wake::wake();
        std::thread::sleep(Duration::from_micros(200));
        if let Some(ring) = find() {
            return Some(ring);
        }
    }
    None
}

fn try_take(place: &AtomicPtr<Ring>, thread: u32) -> Option<&'static Ring> {
    // SAFETY: rings are never unmapped.
    let known = unsafe { place.load(Ordering::Acquire).as_ref() };
    let ring = match known {
        Some(ring) => ring,
        None => make(place)?,
    };
    ring.thread.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed).is_ok().then_some(ring)
}

/// A new ring in an empty slot, or the one that another thread just put there.
fn make(place: &AtomicPtr<Ring>) -> Option<&'static Ring> {
    let pages = zeroed_pages(size_of::<Ring>())?.cast::<Ring>().as_ptr();
    let null = std::ptr::null_mut();
    let ring = match place.compare_exchange(null, pages, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => pages,
        Err(others) => {
            // SAFETY: these pages were mapped above, and no other thread has their address.
            unsafe { libc::munmap(pages.cast(), size_of::<Ring>()) };
            others
        }
    };
    // SAFETY: zeroed pages of the right size are an empty ring, and rings are never unmapped.
    unsafe { ring.as_ref() }
}

/// Creates the key. Called when recording starts, before the first event.
pub(crate) fn start() {
    if KEY.load(Ordering::Acquire) != 0 {
        return;
    }
    let mut key = 0;
    // SAFETY: `key` is a valid out-parameter, and the destructor is a function that stays loaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(leave)) } == 0 {
        KEY.store(key + 1, Ordering::Release);
    }
}

/// Sets the value that `leave` receives when this thread exits.
fn set_value_of_key(ring: *const Ring) {
    if let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) {
        // SAFETY: `start` created the key, which is never deleted; the value is only passed to `leave`.
        unsafe { libc::pthread_setspecific(key, ring.cast()) };
    }
}

/// Runs at thread exit: leaves the ring to the writer.
unsafe extern "C" fn leave(ring: *mut libc::c_void) {
    OWN.set(std::ptr::null());
    // SAFETY: the key's value is a ring (see `set_value_of_key`), and rings are never unmapped.
    if let Some(ring) = unsafe { ring.cast::<Ring>().as_ref() } {
        ring.is_left.store(true, Ordering::Release);
    }
    if (ENDED.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(ENDED_THREADS_PER_WAKE) {
        wake::wake();
    }
}

/// The rings that have an owner, for the writer.
pub(crate) fn rings() -> impl Iterator<Item = (usize, &'static Ring)> {
    RINGS
        .iter()
        // SAFETY: rings are never unmapped.
        .map_while(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
        .enumerate()
        .filter(|(_, ring)| ring.thread.load(Ordering::Acquire) != 0)
}

/// Frees a ring that its owner has left, once it is empty.
pub(crate) fn free_if_left(ring: &Ring) {
    if ring.is_left.load(Ordering::Acquire) && ring.is_empty() {
        ring.is_left.store(false, Ordering::Relaxed);
        ring.thread.store(0, Ordering::Release);
    }
}

/// Events dropped since the last call.
pub(crate) fn take_dropped() -> u64 {
    rings().map(|(_, ring)| ring.dropped.swap(0, Ordering::Relaxed)).sum::<u64>() + lost::take_without_ring()
}

/// Resets all rings in a forked child, where only the calling thread exists.
pub(crate) fn reset_after_fork() {
    for (_, ring) in rings() {
        ring.reset();
    }
    lost::reset_after_fork();
    OWN.set(std::ptr::null());
    // Another thread may claim this thread's old ring, and must not lose it when this thread exits.
    set_value_of_key(std::ptr::null());
}

#[cfg(test)]
mod tests {
    use makeroom_trace::room::EventKind;

    use super::super::ring::CAPACITY;
    use super::*;

    #[test]
    fn a_burst_while_the_writer_is_busy_goes_on_in_other_rings() {
        // SAFETY: `gettid` has no preconditions.
        let own = unsafe { libc::gettid() } as u32;
        let burst = u64::from(CAPACITY) * 3 + 5;
        for number in 0..burst {
            send(&RawEvent { time_ns: number, ..RawEvent::new(EventKind::DeviceAlloc) });
        }
        let mut times = Vec::new();
        for (_, ring) in rings().filter(|(_, ring)| ring.thread.load(Ordering::Relaxed) == own) {
            ring.drain(|event| times.push(event.time_ns));
            free_if_left(ring);
        }
        assert_eq!(times, (0..burst).collect::<Vec<_>>());
        assert_eq!(take_dropped(), 0);
        let kept = rings().filter(|(_, ring)| ring.thread.load(Ordering::Relaxed) == own).count();
        assert_eq!(kept, 1, "rings that were left are free again");
    }
}
