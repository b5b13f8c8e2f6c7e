//! The laws of all allocations of a program, read off its runs.
//!
//! The n-th allocation that a place in the code makes in one run is its n-th in every other: a program with another
//! batch does the same things in the same order. Where that cannot be (a run went on for longer, or shapes vary from
//! step to step) the place's other allocations, or its mean, stand in; what was found so is not called exact.

use makeroom_core::FastMap;

use crate::law::{Found, Point, SizeLaw};
use crate::probe::Probe;

/// A place whose allocations fit their laws less often than this has sizes that follow something else.
const LEAST_EXACT_SHARE: f64 = 0.9;

/// The law of every allocation of the last probe. Probes are given by ascending batch.
pub(crate) fn laws(probes: &[Probe]) -> Vec<Found> {
    let Some((reference, smaller)) = probes.split_last() else { return Vec::new() };
    let others: Vec<(u64, FastMap<u64, Vec<u64>>)> =
        smaller.iter().map(|probe| (probe.batch, sizes_by_key(probe))).collect();
    let none = Found { law: SizeLaw::Fixed(0), is_exact: false };
    let mut laws = vec![none; reference.program.allocations.len()];
    for (key, numbers) in numbers_by_key(reference) {
        let place = Place {
            batch: reference.batch,
            sizes: numbers.iter().map(|&number| reference.program.size(number)).collect(),
            others: others
                .iter()
                .filter_map(|(batch, sizes)| Some((*batch, sizes.get(&key)?.as_slice())))
                .collect(),
        };
        for (number, found) in numbers.into_iter().zip(place.laws()) {
            laws[number as usize] = found;
        }
    }
    laws
}

fn numbers_by_key(probe: &Probe) -> FastMap<u64, Vec<u32>> {
    let mut numbers: FastMap<u64, Vec<u32>> = FastMap::default();
    for (number, &key) in probe.keys.iter().enumerate() {
        numbers.entry(key).or_default().push(number as u32);
    }
    numbers
}

fn sizes_by_key(probe: &Probe) -> FastMap<u64, Vec<u64>> {
    let mut sizes: FastMap<u64, Vec<u64>> = FastMap::default();
    for (allocation, &key) in probe.program.allocations.iter().zip(&probe.keys) {
        sizes.entry(key).or_default().push(allocation.size);
    }
    sizes
}

/// What one place in the code asked for, in each run.
struct Place<'probes> {
    /// The batch of the reference.
    batch: u64,
    /// The sizes in the reference.
    sizes: Vec<u64>,
    /// The sizes in the other runs that came here, by ascending batch.
    others: Vec<(u64, &'probes [u64])>,
}

impl Place<'_> {
    /// The law of each allocation of the reference.
    fn laws(&self) -> Vec<Found> {
        if self.others.is_empty() {
            return self.sizes.iter().map(|&size| self.proportional(size)).collect();
        }
        let matched: Vec<Option<Found>> =
            (0..self.sizes.len()).map(|position| self.matched(position)).collect();
        let (mut exact, mut all) = (0.0, 0.0);
        for (found, &size) in matched.iter().zip(&self.sizes) {
            let Some(found) = found else { continue };
            all += size as f64;
            exact += if found.is_exact { size as f64 } else { 0.0 };
        }
        // With two runs a line goes through anything, so there nothing speaks against it.
        let is_regular = all > 0.0 && exact / all >= LEAST_EXACT_SHARE;
        if !is_regular {
            return self.shares();
        }
        let mut by_size: FastMap<u64, Found> = FastMap::default();
        for (found, &size) in matched.iter().zip(&self.sizes) {
            let Some(found) = *found else { continue };
            // Two laws for one size: the one that grows more is the safe one.
            let kept = by_size.entry(size).or_insert(found);
            let far = self.batch.saturating_mul(4);
            if found.law.at(far) > kept.law.at(far) {
                *kept = found;
            }
        }
        let unmatched = |size| by_size.get(&size).copied().unwrap_or_else(|| self.proportional(size));
        matched
            .into_iter()
            .zip(&self.sizes)
            .map(|(found, &size)| found.unwrap_or_else(|| unmatched(size)))
            .collect()
    }

    /// The law of the allocation at a position, from the runs that came as far.
    fn matched(&self, position: usize) -> Option<Found> {
        let mut points: Vec<Point> =
            self.others.iter().filter_map(|(batch, sizes)| Some((*batch, *sizes.get(position)?))).collect();
        if points.is_empty() {
            return None;
        }
        points.push((self.batch, self.sizes[position]));
        Some(SizeLaw::through(&points))
    }

    /// Laws for a place whose sizes follow more than the batch: each grows as their mean does.
    fn shares(&self) -> Vec<Found> {
        let Some(&(batch, sizes)) = self.others.first() else {
            return self.sizes.iter().map(|&size| self.proportional(size)).collect();
        };
        let means = [(batch, mean(sizes)), (self.batch, mean(&self.sizes))];
        let grows = means[1].1 > means[0].1;
        let law = |&size: &u64| if grows { SizeLaw::Share { size, means } } else { SizeLaw::Fixed(size) };
        self.sizes.iter().map(|size| Found { law: law(size), is_exact: false }).collect()
    }

    /// The safe law for what was seen once: all of it grows.
    fn proportional(&self, size: u64) -> Found {
        Found { law: SizeLaw::Line([(0, 0), (self.batch, size)]), is_exact: false }
    }
}

fn mean(sizes: &[u64]) -> u64 {
    let sum: u128 = sizes.iter().map(|&size| u128::from(size)).sum();
    u64::try_from(sum / sizes.len().max(1) as u128).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Shape, training};

    #[test]
    fn the_laws_of_two_runs_predict_a_third_to_the_byte() {
        let shape = Shape::default();
        let laws = laws(&[training(&shape, 2), training(&shape, 8)]);
        let real = training(&shape, 100).program;
        assert!(laws.iter().all(|found| found.is_exact));
        let predicted: Vec<u64> = laws.iter().map(|found| found.law.at(100)).collect();
        let sizes: Vec<u64> = real.allocations.iter().map(|allocation| allocation.size).collect();
        assert_eq!(predicted, sizes);
    }

    #[test]
    fn a_run_that_went_on_for_longer_is_predicted_from_one_that_did_not() {
        let longer = Shape { steps: 9, ..Shape::default() };
        let laws = laws(&[training(&Shape::default(), 2), training(&longer, 8)]);
        let sizes = training(&longer, 64).program.allocations;
        for (found, allocation) in laws.iter().zip(sizes) {
            assert_eq!(found.law.at(64), allocation.size);
        }
    }

    #[test]
    fn a_square_is_found_by_three_runs() {
        let shape = Shape { compares_all: true, ..Shape::default() };
        let laws = laws(&[training(&shape, 2), training(&shape, 8), training(&shape, 32)]);
        let sizes = training(&shape, 200).program.allocations;
        for (found, allocation) in laws.iter().zip(sizes) {
            assert_eq!(found.law.at(200), allocation.size);
        }
    }

    #[test]
    fn varying_shapes_grow_as_their_mean_and_are_not_called_exact() {
        let shape = |lengths: &[u64]| Shape { steps: 6, lengths: lengths.to_vec(), ..Shape::default() };
        let probes = [
            training(&shape(&[60, 100, 80]), 2),
            training(&shape(&[80, 60, 100]), 8),
            training(&shape(&[100, 80, 60]), 32),
        ];
        let laws = laws(&probes);
        let varying: Vec<&Found> = laws.iter().filter(|found| !found.is_exact).collect();
        assert!(varying.len() > laws.len() / 2);
        let reference = &probes[2].program;
        for (found, allocation) in laws.iter().zip(&reference.allocations) {
            if !found.is_exact {
                let doubled = found.law.at(64) as f64 / allocation.size as f64;
                assert!((1.98..2.02).contains(&doubled), "{doubled}");
            }
        }
    }
}
