//! Aligns the allocations of a site in one run with those in another.
//!
//! The n-th allocation corresponds to the n-th, unless one run made some that the other did not: with another batch,
//! cuDNN chooses another algorithm and allocates its workspace more or less often, which shifts all later ones. So
//! both sequences are walked together, and where sizes do not match, a small shift is searched that makes the next
//! ones match again. Only temporary allocations are skipped for this, and small blocks of PyTorch, which its
//! reductions allocate for large inputs. The program's own tensors exist with every batch.

use crate::sizes::Sizes;

/// Maximum shift.
const REACH: usize = 12;
/// Number of allocations after a shift that are compared.
const WINDOW: usize = 8;

/// The allocations of one site with one batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'probe> {
    pub(crate) batch: u64,
    pub(crate) sizes: &'probe [u64],
    /// Whether each was freed before anything else happened.
    pub(crate) is_passing: &'probe [bool],
    pub(crate) kind: Sizes,
}

/// For each allocation of `large`, the index of the corresponding one in `small`. Also returns how many allocations
/// of `large` come before the end of `small`.
pub(crate) fn pairs(large: Asked<'_>, small: Asked<'_>) -> (Vec<Option<usize>>, usize) {
    let mut found = vec![None; large.sizes.len()];
    let (mut at, mut other) = (0, 0);
    while at < large.sizes.len() && other < small.sizes.len() {
        if grade(large, small, at, other) < Grade::Lawful as usize {
            match (large.is_slight(at), small.is_slight(other)) {
                // A small or temporary allocation never matches another kind.
                (true, false) => {
                    at += 1;
                    continue;
                }
                (false, true) => {
                    other += 1;
                    continue;
                }
                _ => {
                    let (skipped, passed) = shift(large, small, at, other);
                    (at, other) = (at + skipped, other + passed);
                }
            }
        }
        found[at] = Some(other);
        (at, other) = (at + 1, other + 1);
    }
    (found, at)
}

/// How well two allocations match.
enum Grade {
    /// Neither fixed nor proportional.
    Odd = 0,
    /// Fixed, or proportional to the batch.
    Lawful = 2,
}

fn grade(large: Asked<'_>, small: Asked<'_>, at: usize, other: usize) -> usize {
    let (Some(&size), Some(&smaller)) = (large.sizes.get(at), small.sizes.get(other)) else {
        return Grade::Odd as usize;
    };
    if large.is_passing[at] != small.is_passing[other] {
        return Grade::Odd as usize;
    }
    let (high, low) = (large.kind.least(size), small.kind.least(smaller));
    // Both are ranges: the requested size is at most the recorded one, and at least that minus the allocator's
    // rounding.
    let is_fixed = high <= smaller && low <= size;
    let scaled = |bytes: u64, batch: u64| u128::from(bytes) * u128::from(batch);
    let is_proportional = scaled(high, small.batch) <= scaled(smaller, large.batch)
        && scaled(low, large.batch) <= scaled(size, small.batch);
    if is_fixed || is_proportional { Grade::Lawful as usize } else { Grade::Odd as usize }
}

/// How many allocations of each to skip so that the next ones match; zero if that does not help.
fn shift(large: Asked<'_>, small: Asked<'_>, at: usize, other: usize) -> (usize, usize) {
    let score = |(skipped, passed): (usize, usize)| {
        let pairs = (0..WINDOW).map(|next| (at + skipped + next, other + passed + next));
        let score: usize = pairs.map(|(at, other)| grade(large, small, at, other)).sum();
        // Skipped allocations count against a shift.
        score + 2 * REACH - (skipped + passed)
    };
    let (most, most_other) = (large.passing(at), small.passing(other));
    let shifts = (0..=most).flat_map(|skipped| (0..=most_other).map(move |passed| (skipped, passed)));
    // The first of the best: prefer no shift.
    let best = shifts.map(|shift| (score(shift), shift));
    let best = best.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map_or((0, 0), |(_, shift)| shift)
}

impl Asked<'_> {
    fn is_slight(&self, position: usize) -> bool {
        self.is_passing[position] || self.kind.is_slight(self.sizes[position])
    }

    /// How many allocations can be skipped from a position on, leaving at least one.
    fn passing(&self, from: usize) -> usize {
        let passing = (from..self.sizes.len()).take_while(|&position| self.is_slight(position)).count();
        passing.min(self.sizes.len() - from - 1).min(REACH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Odd sizes stand for temporary allocations.
    fn with_asked<T>(batch: u64, sizes: &[u64], then: impl FnOnce(Asked<'_>) -> T) -> T {
        let is_passing: Vec<bool> = sizes.iter().map(|size| size % 2 == 1).collect();
        then(Asked { batch, sizes, is_passing: &is_passing, kind: Sizes::Requested })
    }

    fn paired(large: (u64, &[u64]), small: (u64, &[u64])) -> (Vec<Option<usize>>, usize) {
        with_asked(large.0, large.1, |large| with_asked(small.0, small.1, |small| pairs(large, small)))
    }

    #[test]
    fn runs_that_do_the_same_are_paired_one_by_one() {
        let (found, seen) = paired((20, &[700, 40, 60, 700]), (10, &[700, 20, 30]));
        assert_eq!(found, [Some(0), Some(1), Some(2), None]);
        assert_eq!(seen, 3);
    }

    #[test]
    fn what_only_one_of_them_asks_for_is_left_out() {
        let mut small: Vec<u64> = (1..100).map(|number| 10 * number).collect();
        let mut large: Vec<u64> = small.iter().map(|size| 3 * size).collect();
        large.insert(40, 7);
        large.insert(70, 11);
        small.insert(20, 13);
        let (found, _) = paired((30, &large), (10, &small));
        let wrong = found.iter().zip(&large).filter(|(found, size)| {
            found.is_some_and(|position| small[position] * 3 != **size) || found.is_none() && **size > 11
        });
        assert_eq!(wrong.count(), 0, "{found:?}");
    }

    #[test]
    fn what_a_program_keeps_is_never_left_out() {
        let (found, _) = paired((30, &[300, 240, 180, 300, 240, 180]), (10, &[60, 100, 80, 60, 100, 80]));
        assert!(found.iter().enumerate().all(|(at, found)| *found == Some(at)), "{found:?}");
    }

    #[test]
    fn a_law_that_is_neither_fixed_nor_in_proportion_keeps_the_order() {
        let squares = |batch: u64| -> Vec<u64> { (1..30).map(|number| 2 * number * batch * batch).collect() };
        let (found, _) = paired((9, &squares(9)), (4, &squares(4)));
        assert!(found.iter().enumerate().all(|(at, found)| *found == Some(at)), "{found:?}");
    }
}
