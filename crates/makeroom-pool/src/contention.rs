//! Contention heuristic: decides when a thread switches to an arena.
//!
//! Occasional contention is cheaper than memory in two places. A thread that finds locks taken repeatedly switches to
//! an arena for a while, measured in its own small allocations, because reading a clock would cost as much as one. A
//! thread that has to switch again soon after it returned stays longer (exponential backoff, bounded), so that it
//! returns once the contention is gone. All pools count together: what matters is that several threads allocate.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Contended acquisitions within CLOSE calls of each other form a streak; OFTEN of them trigger a switch.
const CLOSE: u32 = 64;
const OFTEN: u32 = 4;
/// Number of calls for which a thread uses an arena: minimum, and maximum after repeated switches.
const LEAST_STAY: u32 = 1 << 12;
const MOST_STAY: u32 = 1 << 20;

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// A thread's counters.
struct Contention {
    /// Calls left in its arena.
    aside: Cell<u32>,
    /// Calls since it returned to the core, and that count at the last contention.
    back: Cell<u32>,
    last: Cell<u32>,
    /// Length of the current streak.
    met: Cell<u32>,
    /// Duration of the last switch, in calls.
    stay: Cell<u32>,
}

thread_local! {
    static MEETINGS: Contention = const {
        Contention {
            aside: Cell::new(0),
            back: Cell::new(0),
            last: Cell::new(0),
            met: Cell::new(0),
            stay: Cell::new(0),
        }
    };
    static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// This thread's number, if it uses an arena for this call. Counts the call.
#[inline]
pub(crate) fn arena() -> Option<usize> {
    MEETINGS.with(|own| {
        let left = own.aside.get();
        if left == 0 {
            own.back.set(own.back.get().saturating_add(1));
            return None;
        }
        own.aside.set(left - 1);
        Some(NUMBER.with(|number| *number))
    })
}

/// This thread has found a lock taken.
#[cold]
pub(crate) fn met_another() {
    MEETINGS.with(|own| {
        // A thread that uses an arena comes here for large blocks or new memory, which says nothing about small ones.
        if own.aside.get() > 0 {
            return;
        }
        let is_close = own.back.get() - own.last.get() <= CLOSE;
        own.last.set(own.back.get());
        own.met.set(if is_close { own.met.get() + 1 } else { 1 });
        if own.met.get() >= OFTEN {
            let is_again = own.back.get() < own.stay.get();
            let stay = if is_again { (own.stay.get() * 2).min(MOST_STAY) } else { LEAST_STAY };
            own.stay.set(stay);
            own.aside.set(stay);
            for counted in [&own.back, &own.last, &own.met] {
                counted.set(0);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of calls for which the thread uses an arena.
    fn calls() -> u32 {
        (0..=2 * MOST_STAY).take_while(|_| arena().is_some()).fold(0, |calls, _| calls + 1)
    }

    fn meet_often() {
        for _ in 0..OFTEN {
            assert!(arena().is_none());
            met_another();
        }
    }

    #[test]
    fn a_thread_that_meets_others_again_and_again_turns_aside_for_longer() {
        std::thread::spawn(|| {
            let stays: Vec<u32> = (0..10)
                .map(|_| {
                    meet_often();
                    calls()
                })
                .collect();
            assert_eq!(stays[..3], [LEAST_STAY, 2 * LEAST_STAY, 4 * LEAST_STAY]);
            assert_eq!(stays[8..], [MOST_STAY, MOST_STAY]);
            assert!((0..2 * MOST_STAY).all(|_| arena().is_none()), "it is back");
            meet_often();
            assert_eq!(calls(), LEAST_STAY, "long ago");
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn a_thread_that_meets_others_now_and_then_stays() {
        std::thread::spawn(|| {
            for _ in 0..1000 {
                met_another();
                assert!((0..=CLOSE).all(|_| arena().is_none()));
            }
        })
        .join()
        .expect("no panic");
    }
}
