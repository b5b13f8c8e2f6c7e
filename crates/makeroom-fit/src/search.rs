//! The largest batch that fits.

/// How far beyond the first answer is looked, as a part of it.
const BEYOND: u64 = 16;
/// In how many steps.
const STEPS: u64 = 16;

/// The largest batch of `1 ..= most` of which `fits` says so, by doubling from `hint` and halving the distance; `None`
/// if not even 1 fits.
///
/// More need not fit less: an allocator may get through with a batch and fail with a smaller one, by the pieces that its
/// memory falls into. So a little beyond the first answer is looked at too. What is guaranteed, because both were tried:
/// the result fits, and the next larger batch does not (or is beyond `most`).
pub fn largest(hint: u64, most: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let first = upward(hint, most, &fits);
    let step = (first / BEYOND / STEPS).max(1);
    let mut further = (1..=STEPS).rev().map(|number| first + number * step);
    let beyond = further.find(|&batch| first > 0 && batch <= most && fits(batch));
    let result = beyond.map_or(first, |batch| upward(batch, most, &fits));
    (result > 0).then_some(result)
}

/// How far below an answer is looked, as a part of it.
const BELOW: u64 = 12;
/// So many of the [`STEPS`] batches looked at there may be refused: the pieces fell badly for them.
const ODD_ONES: usize = 3;

/// [`largest`] where nearly all that is a little less fits as well.
///
/// Where memory falls into pieces that change with every batch, one that fits may stand alone, by chance, and real runs are
/// not so exact.
pub(crate) fn steadily(hint: u64, most: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let mut answer = largest(hint, most, &fits)?;
    loop {
        let step = (answer / BELOW / STEPS).max(1);
        let below = (1..=STEPS).map(|number| answer.saturating_sub(number * step));
        let looked_at: Vec<(u64, bool)> =
            below.take_while(|&batch| batch > 0).map(|batch| (batch, fits(batch))).collect();
        let refused = looked_at.iter().filter(|(_, is_fitting)| !is_fitting).count();
        if refused <= ODD_ONES {
            return Some(answer);
        }
        let highest = looked_at.iter().position(|(_, is_fitting)| !is_fitting)?;
        let next = looked_at[highest..].iter().position(|(_, is_fitting)| *is_fitting);
        answer = if let Some(behind) = next {
            halve(looked_at[highest + behind].0, looked_at[highest + behind - 1].0, &fits)
        } else {
            let lowest = looked_at.last()?.0;
            upward(lowest / 2, lowest, &fits)
        };
        if answer == 0 {
            return None;
        }
    }
}

/// A batch that fits while the next larger one does not, found from a hint; 0 if there is none below it.
fn upward(hint: u64, most: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (enough, too_many) = bracket(hint, most, &fits);
    halve(enough, too_many, fits)
}

/// A batch that fits, or 0, and a larger one that does not, or is beyond `most`.
fn bracket(hint: u64, most: u64, fits: impl Fn(u64) -> bool) -> (u64, u64) {
    let most = most.max(1);
    let mut enough = hint.clamp(1, most);
    if !fits(enough) {
        return (0, enough);
    }
    while enough < most {
        let guess = enough.saturating_mul(2).min(most);
        if !fits(guess) {
            return (enough, guess);
        }
        enough = guess;
    }
    (enough, most.saturating_add(1))
}

/// Halves the distance until it is one: `enough` fits or is 0, `too_many` does not.
fn halve(mut enough: u64, mut too_many: u64, fits: impl Fn(u64) -> bool) -> u64 {
    while enough + 1 < too_many {
        let middle = u64::midpoint(enough, too_many);
        if fits(middle) {
            enough = middle;
        } else {
            too_many = middle;
        }
    }
    enough
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_largest_is_found_from_any_hint(limit in 0_u64..10_000, hint in 0_u64..20_000, most in 1_u64..20_000) {
            let found = largest(hint, most, |batch| batch <= limit);
            let expected = limit.min(most);
            prop_assert_eq!(found, (expected > 0).then_some(expected));
        }
    }

    #[test]
    fn what_fits_beyond_a_smaller_one_that_does_not_is_found() {
        let fits = |batch| batch <= 1000 || (1030..=1041).contains(&batch);
        assert_eq!(largest(8, 1 << 20, fits), Some(1041));
    }

    #[test]
    fn what_fits_by_chance_above_what_does_not_is_not_relied_on() {
        let fits = |batch| batch <= 1000 || (1030..=1041).contains(&batch);
        assert_eq!(steadily(1035, 1 << 20, fits), Some(1000));
        // And what is refused by chance does not end it.
        assert_eq!(steadily(8, 1 << 20, |batch| batch <= 1041 && batch % 100 != 0), Some(1041));
        assert_eq!(steadily(8, 1 << 20, |batch| batch <= 56), Some(56));
        assert_eq!(steadily(8, 1 << 20, |batch| batch <= 3), Some(3));
        assert_eq!(steadily(8, 1 << 20, |_| false), None);
        assert_eq!(steadily(8, 100, |_| true), Some(100));
    }

    #[test]
    fn without_any_limit_the_most_is_found_in_few_tries() {
        let tries = std::cell::Cell::new(0);
        let count = |_| {
            tries.set(tries.get() + 1);
            true
        };
        assert_eq!(largest(8, 1 << 40, count), Some(1 << 40));
        assert!(tries.get() < 80);
    }
}
