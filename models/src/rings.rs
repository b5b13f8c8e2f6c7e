//! The ring between a thread and the writer.

use crate::event::RawEvent;
use crate::ring::{CAPACITY, Filling, Ring};
use crate::run::{Arc, model, spawn, yield_now};

fn ring() -> Ring {
    #[cfg(loom)]
    return Ring::new();
    #[cfg(not(loom))]
    // SAFETY: all zeros are an empty ring.
    return unsafe { std::mem::zeroed() };
}

fn event(number: u64) -> RawEvent {
    RawEvent { address: number, size: !number }
}

/// More events than fit go through, in order and whole; a full ring refuses and loses nothing.
#[test]
fn events_arrive_whole_and_in_order() {
    let count = u64::from(CAPACITY) + 1;
    model(move || {
        let ring = Arc::new(ring());
        let owner = {
            let ring = Arc::clone(&ring);
            spawn(move || {
                for number in 0..count {
                    while ring.push(&event(number)).is_err() {
                        yield_now();
                    }
                }
            })
        };
        let mut next = 0;
        while next < count {
            ring.drain(|event| {
                assert_eq!((event.address, event.size), (next, !next));
                next += 1;
            });
            if next < count {
                yield_now();
            }
        }
        owner.join().unwrap();
        assert!(ring.is_empty());
    });
}

/// The writer frees a ring that its thread has left, and the next thread to take it finds it empty.
#[test]
fn a_ring_that_was_left_is_empty_for_the_next_thread() {
    use crate::sync::Ordering;
    model(|| {
        let ring = Arc::new(ring());
        ring.thread.store(1, Ordering::Relaxed);
        let owner = {
            let ring = Arc::clone(&ring);
            spawn(move || {
                assert!(ring.push(&event(7)).is_ok());
                ring.is_left.store(true, Ordering::Release);
            })
        };
        let next = {
            let ring = Arc::clone(&ring);
            spawn(move || {
                // As `threads::try_take`.
                let taken = ring.thread.compare_exchange(0, 2, Ordering::AcqRel, Ordering::Relaxed);
                taken.is_ok().then(|| ring.push(&event(8)).ok())
            })
        };
        let mut seen = Vec::new();
        for _ in 0..2 {
            ring.drain(|event| seen.push(event.address));
            // As `threads::free_if_left`.
            if ring.is_left.load(Ordering::Acquire) && ring.is_empty() {
                ring.is_left.store(false, Ordering::Relaxed);
                ring.thread.store(0, Ordering::Release);
            }
        }
        owner.join().unwrap();
        if let Some(pushed) = next.join().unwrap() {
            assert_eq!(pushed, Some(Filling::Fine), "it was empty");
            ring.drain(|event| seen.push(event.address));
            assert_eq!(seen, [7, 8]);
        }
    });
}
