//! Whether a thread has met another lately, and so should keep away from locks that others use.
//!
//! It is counted in the thread's own calls: a clock would cost as much as an allocation. A thread that meets another
//! again soon after it is back keeps away for longer, up to a bound, so that one that others have left alone for long
//! comes back. Of which pool the lock was does not matter: the thread is one of several.

use std::cell::Cell;

/// For so many calls a thread that met another keeps away: the least, and the most where it met one again and again.
const LEAST_STAY: i32 = 1 << 12;
const MOST_STAY: i32 = 1 << 16;

thread_local! {
    /// Calls for which this thread still keeps away; below 0, how many it made since.
    static AWAY: Cell<i32> = const { Cell::new(i32::MIN) };
    /// For how many calls it kept away last.
    static STAY: Cell<i32> = const { Cell::new(LEAST_STAY) };
}

/// Whether this thread keeps away from the lock for this call.
#[inline]
pub(crate) fn keeps_away() -> bool {
    AWAY.with(|away| {
        let left = away.get();
        away.set(left.saturating_sub(1));
        left > 0
    })
}

/// This thread has met another. If it did so before and has hardly been back since, it keeps away for longer.
#[cold]
pub(crate) fn met_another() {
    let stay = STAY.with(|stay| {
        let is_again = AWAY.with(Cell::get) >= -stay.get();
        stay.set(if is_again { (stay.get() * 2).min(MOST_STAY) } else { LEAST_STAY });
        stay.get()
    });
    AWAY.with(|away| away.set(stay));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_meets_another_again_and_again_keeps_away_for_longer() {
        let calls = |most: i32| (0..=most).take_while(|_| keeps_away()).fold(0, |calls, _| calls + 1);
        std::thread::spawn(move || {
            assert!(!keeps_away(), "a thread that has met nobody");
            let stays: Vec<i32> = (0..6)
                .map(|_| {
                    met_another();
                    calls(2 * MOST_STAY)
                })
                .collect();
            assert_eq!(
                stays,
                [LEAST_STAY, 2 * LEAST_STAY, 4 * LEAST_STAY, 8 * LEAST_STAY, MOST_STAY, MOST_STAY]
            );
            assert!((0..2 * MOST_STAY).all(|_| !keeps_away()), "it is back");
            met_another();
            assert_eq!(calls(2 * MOST_STAY), LEAST_STAY, "long ago");
        })
        .join()
        .expect("no panic");
    }
}
