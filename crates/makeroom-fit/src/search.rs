//! The largest batch that fits.

/// The largest batch of `1 ..= most` of which `fits` says so, by doubling from `hint` and halving the distance; `None`
/// if not even 1 fits.
///
/// More need not fit less: an allocator may get through with a batch and fail with a smaller one. What is guaranteed,
/// because both were tried: the result fits, and the next larger batch does not (or is beyond `most`).
pub fn largest(hint: u64, most: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let most = most.max(1);
    let mut enough = 0;
    let mut too_many = most.saturating_add(1);
    let mut guess = hint.clamp(1, most);
    // Away from the hint, in steps that double.
    if fits(guess) {
        enough = guess;
        while enough < most {
            guess = enough.saturating_mul(2).min(most);
            if !fits(guess) {
                too_many = guess;
                break;
            }
            enough = guess;
        }
    } else {
        too_many = guess;
    }
    while enough + 1 < too_many {
        let middle = u64::midpoint(enough, too_many);
        if fits(middle) {
            enough = middle;
        } else {
            too_many = middle;
        }
    }
    (enough > 0).then_some(enough)
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
    fn without_any_limit_the_most_is_found_in_few_tries() {
        let tries = std::cell::Cell::new(0);
        let count = |_| {
            tries.set(tries.get() + 1);
            true
        };
        assert_eq!(largest(8, 1 << 40, count), Some(1 << 40));
        assert!(tries.get() < 50);
    }
}
