//! One thread's events on their way to the writer: a ring with one producer and one consumer (SPSC), without a lock.
//! `models/` checks it with loom.
//!
//! Invariants: `0 ≤ tail − head ≤ CAPACITY` (wrapping). Only the owning thread moves `tail`, only the writer moves
//! `head`; a slot between them belongs to the writer, any other to the owner.

use super::event::RawEvent;
use crate::python::seen::{Frames, prefetch};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, UnsafeCell};

/// Events that fit. At 64 bytes each a ring is 256 KiB of pages, touched as they are needed.
#[cfg(not(any(loom, miri)))]
pub(crate) const CAPACITY: u32 = 4096;
/// As few as show all that can happen: miri looks at the whole ring in every call.
#[cfg(any(loom, miri))]
pub(crate) const CAPACITY: u32 = 2;

/// One thread's events. All zeros are an empty ring that nobody owns.
#[repr(C)]
pub(crate) struct Ring {
    /// The owner's thread id, 0 for nobody.
    pub(crate) thread: AtomicU32,
    /// Set when the owner has ended; the writer then frees the ring.
    pub(crate) is_left: AtomicBool,
    /// The next event to read.
    head: AtomicU32,
    /// The next free slot.
    tail: AtomicU32,
    /// Events that found no room.
    pub(crate) dropped: AtomicU64,
    slots: [UnsafeCell<RawEvent>; CAPACITY as usize],
    /// Python frames that the owner has passed; nobody else looks at them.
    pub(crate) seen: Frames,
}

// SAFETY: a slot is touched by one side at a time (see the invariants), and the hand-over is ordered by `head` and
// `tail`: released by the side that gives, acquired by the side that takes.
unsafe impl Sync for Ring {}

impl Ring {
    /// An empty ring, where zeroed pages are none.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self {
            thread: AtomicU32::new(0),
            is_left: AtomicBool::new(false),
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            dropped: AtomicU64::new(0),
            slots: std::array::from_fn(|_| UnsafeCell::new(RawEvent::default())),
            seen: Frames::default(),
        }
    }

    /// Loads the next slot into the cache: an event will be pushed soon.
    #[inline]
    pub(crate) fn prefetch_next(&self) {
        if let Some(slot) = self.slots.get((self.tail.load(Ordering::Relaxed) % CAPACITY) as usize) {
            slot.with(|event| prefetch(event as usize));
        }
    }

    /// Appends an event. `Err` when the ring is full. Only the owning thread may call it.
    #[inline]
    pub(crate) fn push(&self, event: &RawEvent) -> Result<Filling, Full> {
        let tail = self.tail.load(Ordering::Relaxed);
        let used = tail.wrapping_sub(self.head.load(Ordering::Acquire));
        if used >= CAPACITY {
            return Err(Full);
        }
        if let Some(slot) = self.slots.get((tail % CAPACITY) as usize) {
            // SAFETY: the slot lies outside of head..tail, so it belongs to the calling owner.
            slot.with_mut(|slot| unsafe { *slot = *event });
        }
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        Ok(if used == CAPACITY / 2 { Filling::Half } else { Filling::Fine })
    }

    /// Takes all events there are. Only the writer may call it.
    pub(crate) fn drain(&self, mut take: impl FnMut(&RawEvent)) {
        let tail = self.tail.load(Ordering::Acquire);
        let mut head = self.head.load(Ordering::Relaxed);
        while head != tail {
            if let Some(slot) = self.slots.get((head % CAPACITY) as usize) {
                // SAFETY: the slot lies in head..tail, so it belongs to the writer.
                let event = slot.with(|event| unsafe { *event });
                take(&event);
            }
            head = head.wrapping_add(1);
            self.head.store(head, Ordering::Release);
        }
    }

    /// Whether there is nothing to read.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire) == self.tail.load(Ordering::Acquire)
    }

    /// Forgets everything: in a forked child, what belongs to the parent. Only with no other thread running.
    pub(crate) fn reset(&self) {
        self.head.store(self.tail.load(Ordering::Relaxed), Ordering::Relaxed);
        self.dropped.store(0, Ordering::Relaxed);
        self.is_left.store(false, Ordering::Relaxed);
        self.thread.store(0, Ordering::Release);
    }
}

/// The ring has no room.
#[derive(Debug)]
pub(crate) struct Full;

/// How full a ring is after a push.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Filling {
    /// There is room.
    Fine,
    /// It just became half full: time to wake the writer.
    Half,
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::record::memory::Lazy;

    /// Miri is a thousand times slower than the processor.
    const MANY: u64 = if cfg!(miri) { 500 } else { 200_000 };

    fn ring() -> &'static Ring {
        // SAFETY: all zeros are an empty ring.
        let lazy = unsafe { Lazy::<Ring>::new() };
        lazy.get().unwrap()
    }

    #[test]
    fn events_come_out_in_order_and_a_full_ring_refuses() {
        let ring = ring();
        for number in 0..u64::from(CAPACITY) {
            let filling = ring.push(&RawEvent { address: number, ..RawEvent::default() }).unwrap();
            assert_eq!(filling == Filling::Half, number == u64::from(CAPACITY / 2));
        }
        assert!(ring.push(&RawEvent::default()).is_err());
        let mut expected = 0;
        ring.drain(|event| {
            assert_eq!(event.address, expected);
            expected += 1;
        });
        assert_eq!(expected, u64::from(CAPACITY));
        assert!(ring.is_empty());
        assert!(ring.push(&RawEvent::default()).is_ok());
    }

    #[test]
    fn nothing_is_lost_between_two_threads() {
        let ring = ring();
        let producer = std::thread::spawn(move || {
            let mut number = 0;
            while number < MANY {
                match ring.push(&RawEvent { address: number, size: !number, ..RawEvent::default() }) {
                    Ok(_) => number += 1,
                    Err(Full) => std::thread::yield_now(),
                }
            }
        });
        let mut expected = 0;
        while expected < MANY {
            ring.drain(|event| {
                assert_eq!((event.address, event.size), (expected, !expected));
                expected += 1;
            });
        }
        producer.join().unwrap();
    }
}
