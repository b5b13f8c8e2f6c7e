//! The largest batch that fits.

/// How far beyond the first result to search, as a fraction of it.
const BEYOND: u64 = 16;
/// Number of steps in that search.
const STEPS: u64 = 16;

/// The largest batch in `1 ..= most` for which `fits` is true, by exponential search from `hint` and bisection;
/// `None` if not even 1 fits.
///
/// `fits` is not monotonic: because of fragmentation, an allocator may succeed with a batch and fail with a smaller
/// one. So the search also looks a little beyond its first result. Guaranteed, because both were tried: the result
/// fits, and the next larger batch does not (or is beyond `most`).
pub fn largest(hint: u64, most: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let first = upward(hint, most, &fits);
    let step = (first / BEYOND / STEPS).max(1);
    let mut further = (1..=STEPS).rev().map(|number| first + number * step);
    let beyond = further.find(|&batch| first > 0 && batch <= most && fits(batch));
    let result = beyond.map_or(first, |batch| upward(batch, most, &fits));
    (result > 0).then_some(result)
}

/// How far below a result to search, as a fraction of it.
const BELOW: u64 = 12;
/// Weights of batches that fit and of those that do not. The former is stronger evidence: every request succeeded,
/// while in the latter a single one failed.
const GOES_THROUGH: usize = 3;
const IS_REFUSED: usize = 2;

/// The edge between batches that fit and those that do not, if it is ragged. The result fits.
///
/// If fragmentation changes with every batch, a batch may fit by chance while its neighbors do not, or the reverse,
/// and real runs are less exact than a replay. So the edge is placed where the fewest nearby batches are on the wrong
/// side.
pub(crate) fn edge(hint: u64, most: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let mut top = largest(hint, most, &fits)?;
    loop {
        let step = (top / BELOW / STEPS).max(1);
        let below = (0..=STEPS).map(|number| top.saturating_sub(number * step));
        let looked_at: Vec<(u64, bool)> =
            below.take_while(|&batch| batch > 0).map(|batch| (batch, fits(batch))).collect();
        if let Some(position) = best_cut(&looked_at) {
            let above = position.checked_sub(1).map_or(top + 1, |above| looked_at[above].0);
            return Some(halve(looked_at[position].0, above, &fits));
        }
        let lowest = looked_at.last().map_or(0, |&(batch, _)| batch);
        top = upward(lowest / 2, lowest.saturating_sub(1), &fits);
        if top == 0 {
            return None;
        }
    }
}

/// The index, in descending batches, of the one that fits with the fewest fitting batches above it and failing ones
/// below it; the lower one if equal. `None` if choosing none of them is better.
fn best_cut(looked_at: &[(u64, bool)]) -> Option<usize> {
    let refused_in_all = looked_at.iter().filter(|(_, is_fitting)| !is_fitting).count();
    let (mut fitting_above, mut refused_below) = (0, refused_in_all);
    let mut best: Option<(usize, usize)> = None;
    for (position, &(_, is_fitting)) in looked_at.iter().enumerate() {
        if !is_fitting {
            refused_below -= 1;
            continue;
        }
        let wrong = GOES_THROUGH * fitting_above + IS_REFUSED * refused_below;
        if best.is_none_or(|(least, _)| wrong <= least) {
            best = Some((wrong, position));
        }
        fitting_above += 1;
    }
    best.filter(|&(wrong, _)| wrong < GOES_THROUGH * fitting_above).map(|(_, position)| position)
}

/// A batch that fits while the next larger one does not, searched from a hint; 0 if there is none below it.
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

/// Bisects until the distance is one: `enough` fits or is 0, `too_many` does not fit.
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
        assert_eq!(edge(1035, 1 << 20, fits), Some(1000));
        // Random failures do not end the search.
        assert_eq!(edge(8, 1 << 20, |batch| batch <= 1041 && batch % 100 != 0), Some(1041));
        // Nor do many, if more batches fit.
        let ragged = |batch| batch <= 1600 || batch <= 1680 && batch % 40 >= 10;
        assert!((1660..=1680).contains(&edge(8, 1 << 20, ragged).unwrap()));
        // A single success far above all others is ignored.
        assert_eq!(edge(2000, 1 << 20, |batch| batch <= 1000 || batch == 2000), Some(1000));
        assert_eq!(edge(8, 1 << 20, |batch| batch <= 56), Some(56));
        assert_eq!(edge(8, 1 << 20, |batch| batch <= 3), Some(3));
        assert_eq!(edge(8, 1 << 20, |_| false), None);
        assert_eq!(edge(8, 100, |_| true), Some(100));
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
