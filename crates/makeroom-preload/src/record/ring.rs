//! Single-producer single-consumer (SPSC) ring buffer, lock-free: carries one thread's events to the writer.
//! `models/` checks it with loom.
//!
//! Invariants: `0 ≤ tail − head ≤ CAPACITY` (wrapping). Only the owning thread moves `tail`, only the writer moves
//! `head`. The writer owns the slots in `head..tail`, the owning thread all others.

use super::event::RawEvent;
use super::seen::{Frames, prefetch};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, UnsafeCell};

/// Capacity in events. At 64 bytes each, a ring is 256 KiB of pages, which become resident when touched.
#[cfg(not(any(loom, miri)))]
pub(crate) const CAPACITY: u32 = 4096;
/// The smallest ring that shows every case: miri checks the whole ring in every call.
#[cfg(any(loom, miri))]
pub(crate) const CAPACITY: u32 = 2;

/// One thread's events. All zeros are an empty ring without an owner.
#[repr(C)]
pub(crate) struct Ring {
    /// The owner's thread id, 0 for none.
    pub(crate) thread: AtomicU32,
    /// Set when the owner has left; the writer then frees the ring.
    pub(crate) is_left: AtomicBool,
    /// Next event to read.
    head: AtomicU32,
    /// Next free slot.
    tail: AtomicU32,
    /// Events dropped because the ring was full.
    pub(crate) dropped: AtomicU64,
    slots: [UnsafeCell<RawEvent>; CAPACITY as usize],
    /// Python frames already seen by the owner; only the owner accesses them.
    pub(crate) seen: Frames,
}

// SAFETY: only one side accesses a slot at a time (see the invariants), and `head` and `tail` order the handover:
// release by the side that gives up the slot, acquire by the side that takes it.
unsafe impl Sync for Ring {}

impl Ring {
    /// An empty ring, for loom, whose types are not valid as zeros.
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

    /// Prefetches the next slot into the cache, ahead of a push.
    #[inline]
    pub(crate) fn prefetch_next(&self) {
        if let Some(slot) = self.slots.get((self.tail.load(Ordering::Relaxed) % CAPACITY) as usize) {
            slot.with(|event| prefetch(event as usize));
        }
    }

    /// Appends an event. `Err` if the ring is full. Only the owning thread may call this.
    #[inline]
    pub(crate) fn push(&self, event: &RawEvent) -> Result<Filling, Full> {
        let tail = self.tail.load(Ordering::Relaxed);
        let used = tail.wrapping_sub(self.head.load(Ordering::Acquire));
        if used >= CAPACITY {
            return Err(Full);
        }
        if let Some(slot) = self.slots.get((tail % CAPACITY) as usize) {
            // SAFETY: the slot is outside `head..tail`, so it belongs to the caller, the owning thread.
            slot.with_mut(|slot| unsafe { *slot = *event });
        }
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        Ok(if used == CAPACITY / 2 { Filling::Half } else { Filling::Fine })
    }

    /// Reads and removes all events. Only the writer may call this.
    pub(crate) fn drain(&self, mut take: impl FnMut(&RawEvent)) {
        let tail = self.tail.load(Ordering::Acquire);
        let mut head = self.head.load(Ordering::Relaxed);
        while head != tail {
            if let Some(slot) = self.slots.get((head % CAPACITY) as usize) {
                // SAFETY: the slot is inside `head..tail`, so it belongs to the writer.
                let event = slot.with(|event| unsafe { *event });
                take(&event);
            }
            head = head.wrapping_add(1);
            self.head.store(head, Ordering::Release);
        }
    }

    /// Whether the ring is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire) == self.tail.load(Ordering::Acquire)
    }

    /// Discards everything, in a forked child: the events are the parent's. No other thread may be running.
    pub(crate) fn reset(&self) {
        self.head.store(self.tail.load(Ordering::Relaxed), Ordering::Relaxed);
        self.dropped.store(0, Ordering::Relaxed);
        self.is_left.store(false, Ordering::Relaxed);
        self.thread.store(0, Ordering::Release);
    }
}

/// The ring is full.
#[derive(Debug)]
pub(crate) struct Full;

/// How full a ring is after a push.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Filling {
    /// Not at the half-way mark.
    Fine,
    /// Just became half full: time to wake the writer.
    Half,
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::record::memory::Lazy;

    /// Miri is a thousand times slower than native code.
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
