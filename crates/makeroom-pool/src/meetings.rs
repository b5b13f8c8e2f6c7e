//! Whether a thread has met others often of late, and so should turn aside from locks that they use.
//!
//! Two threads that meet now and then wait for each other: that costs less than memory in two places. A thread that
//! meets others again and again turns aside for a while. It is counted in the thread's own small allocations: a clock would
//! cost as much as one. A thread that has to turn aside again soon after it is back does so for longer, up to a bound,
//! so that one that others have left alone comes back. Of which pool the lock was does not matter: the thread is one of
//! several.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Meetings with so many calls in between are one behind the other, and so many of them are often.
const CLOSE: u32 = 64;
const OFTEN: u32 = 4;
/// For so many calls a thread turns aside: the least, and the most where it has to do so again and again.
const LEAST_STAY: u32 = 1 << 12;
const MOST_STAY: u32 = 1 << 20;

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// What a thread knows of itself.
struct Meetings {
    /// Calls for which it still keeps aside.
    aside: Cell<u32>,
    /// Calls since it is back, and those at which it met another last.
    back: Cell<u32>,
    last: Cell<u32>,
    /// Meetings one behind the other.
    met: Cell<u32>,
    /// For how many calls it turned aside last.
    stay: Cell<u32>,
}

thread_local! {
    static MEETINGS: Meetings = const {
        Meetings {
            aside: Cell::new(0),
            back: Cell::new(0),
            last: Cell::new(0),
            met: Cell::new(0),
            stay: Cell::new(0),
        }
    };
    static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// The number of this thread, if it keeps aside for this call.
#[inline]
pub(crate) fn side() -> Option<usize> {
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
        // Whoever is aside comes here for large blocks, or for new memory: that says nothing of the small ones.
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

    /// Calls for which a thread keeps aside.
    fn calls() -> u32 {
        (0..=2 * MOST_STAY).take_while(|_| side().is_some()).fold(0, |calls, _| calls + 1)
    }

    fn meet_often() {
        for _ in 0..OFTEN {
            assert!(side().is_none());
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
            assert!((0..2 * MOST_STAY).all(|_| side().is_none()), "it is back");
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
                assert!((0..=CLOSE).all(|_| side().is_none()));
            }
        })
        .join()
        .expect("no panic");
    }
}
