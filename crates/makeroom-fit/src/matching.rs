//! Derives the laws of all allocations of a program from its runs.
//!
//! The n-th allocation of a site in one run corresponds to its n-th in every other: with another batch, a program
//! does the same things in the same order. If that fails (one run was longer, or shapes vary from step to step), the
//! other allocations of the site, or their mean, are used instead, and the law is not called exact.

use makeroom_core::FastMap;

use crate::aligning::{self, Asked};
use crate::law::{Found, Point, SizeLaw};
use crate::probe::Probe;
use crate::workspaces::passing;

/// If a smaller share of a site's memory follows its laws, the sizes depend on something else.
const LEAST_EXACT_SHARE: f64 = 0.9;
/// The same if a smaller share has a counterpart in another run.
const LEAST_PAIRED_SHARE: f64 = 0.5;

/// The law of every allocation in one run, derived with other runs, which are sorted by batch.
pub(crate) fn laws(reference: &Probe, others: &[&Probe]) -> Vec<Found> {
    let others: Vec<(&Probe, FastMap<u64, Requests>)> =
        others.iter().map(|&probe| (probe, Requests::by_key(probe))).collect();
    let none = Found { law: SizeLaw::Fixed(0), is_exact: false };
    let mut laws = vec![none; reference.program.allocations.len()];
    for (key, requests) in Requests::by_key(reference) {
        let place = SiteInAllRuns {
            own: requests.asked_in(reference),
            others: others
                .iter()
                .filter_map(|(probe, requests)| Some(requests.get(&key)?.asked_in(probe)))
                .collect(),
        };
        for (&number, found) in requests.numbers.iter().zip(place.laws()) {
            laws[number as usize] = found;
        }
    }
    laws
}

/// The allocations of one site in one run.
#[derive(Default)]
struct Requests {
    numbers: Vec<u32>,
    sizes: Vec<u64>,
    is_passing: Vec<bool>,
}

impl Requests {
    fn by_key(probe: &Probe) -> FastMap<u64, Self> {
        let is_passing = passing(&probe.program);
        let mut places: FastMap<u64, Self> = FastMap::default();
        for (number, (allocation, &key)) in probe.program.allocations.iter().zip(&probe.keys).enumerate() {
            let place = places.entry(key).or_default();
            place.numbers.push(number as u32);
            place.sizes.push(allocation.size);
            place.is_passing.push(is_passing[number]);
        }
        places
    }

    fn asked_in(&self, probe: &Probe) -> Asked<'_> {
        Asked { batch: probe.batch, sizes: &self.sizes, is_passing: &self.is_passing, kind: probe.sizes }
    }
}

/// The allocations of one site in all runs.
struct SiteInAllRuns<'probes> {
    /// In the reference.
    own: Asked<'probes>,
    /// In the other runs that reached this site, by ascending batch.
    others: Vec<Asked<'probes>>,
}

impl SiteInAllRuns<'_> {
    /// The law of each allocation in the reference.
    fn laws(&self) -> Vec<Found> {
        let sizes = self.own.sizes;
        if self.others.is_empty() {
            return sizes.iter().map(|&size| self.proportional(size)).collect();
        }
        let paired: Vec<_> = self.others.iter().map(|&other| aligning::pairs(self.own, other)).collect();
        // Beyond the end of the longest other run, nothing is known.
        let known = paired.iter().map(|(_, seen)| *seen).max().unwrap_or(0);
        let matched: Vec<Option<Found>> =
            (0..sizes.len()).map(|position| self.matched(position, &paired)).collect();
        // With two runs, a line fits anything, so nothing contradicts it.
        if !self.is_regular(&matched[..known]) {
            return self.shares();
        }
        let mut by_size: FastMap<u64, Found> = FastMap::default();
        for (found, &size) in matched.iter().zip(sizes) {
            let Some(found) = *found else { continue };
            // If one size has two laws, the faster growing one is safe.
            let kept = by_size.entry(size).or_insert(found);
            let far = self.own.batch.saturating_mul(4);
            if found.law.at(far) > kept.law.at(far) {
                *kept = found;
            }
        }
        let unmatched = |size| by_size.get(&size).copied().unwrap_or_else(|| self.proportional(size));
        matched
            .into_iter()
            .zip(sizes)
            .map(|(found, &size)| found.unwrap_or_else(|| unmatched(size)))
            .collect()
    }

    /// Whether sizes depend on the batch only. Temporary allocations are ignored if there are others, because
    /// libraries vary them with the batch.
    fn is_regular(&self, matched: &[Option<Found>]) -> bool {
        let is_passing = self.own.is_passing;
        let only_passing = is_passing.iter().all(|is_passing| *is_passing);
        let (mut exact, mut paired, mut all) = (0.0, 0.0, 0.0);
        for (position, found) in matched.iter().enumerate() {
            let size = self.own.sizes[position] as f64;
            if is_passing[position] && !only_passing {
                continue;
            }
            all += size;
            paired += if found.is_some() { size } else { 0.0 };
            exact += if found.is_some_and(|found| found.is_exact) { size } else { 0.0 };
        }
        paired > 0.0 && exact / paired >= LEAST_EXACT_SHARE && paired / all >= LEAST_PAIRED_SHARE
    }

    /// The law of an allocation, from the runs in which it has a counterpart.
    fn matched(&self, position: usize, paired: &[(Vec<Option<usize>>, usize)]) -> Option<Found> {
        let partner = |(other, (found, _)): (&Asked<'_>, &(Vec<Option<usize>>, usize))| {
            Some((other.batch, other.sizes[found[position]?]))
        };
        let mut points: Vec<Point> = self.others.iter().zip(paired).filter_map(partner).collect();
        if points.is_empty() {
            return None;
        }
        points.push((self.own.batch, self.own.sizes[position]));
        points.sort_unstable_by_key(|point| point.0);
        points.dedup_by_key(|point| point.0);
        Some(SizeLaw::from_points(&points, self.own.kind))
    }

    /// Laws for a site whose sizes depend on more than the batch: each is proportional to their mean.
    fn shares(&self) -> Vec<Found> {
        let own = self.own;
        let Some(first) = self.others.first() else {
            return own.sizes.iter().map(|&size| self.proportional(size)).collect();
        };
        let means = [(first.batch, mean(first.sizes)), (own.batch, mean(own.sizes))];
        let grows = means[1].1 > means[0].1;
        let law = |&size: &u64| if grows { SizeLaw::Share { size, means } } else { SizeLaw::Fixed(size) };
        own.sizes.iter().map(|size| Found { law: law(size), is_exact: false }).collect()
    }

    /// The safe law for a size that was seen once: proportional to the batch.
    fn proportional(&self, size: u64) -> Found {
        Found { law: SizeLaw::Line([(0, 0), (self.own.batch, size)]), is_exact: false }
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
        let laws = laws(&training(&shape, 8), &[&training(&shape, 2)]);
        let real = training(&shape, 100).program;
        assert!(laws.iter().all(|found| found.is_exact));
        let predicted: Vec<u64> = laws.iter().map(|found| found.law.at(100)).collect();
        let sizes: Vec<u64> = real.allocations.iter().map(|allocation| allocation.size).collect();
        assert_eq!(predicted, sizes);
    }

    #[test]
    fn a_run_that_went_on_for_longer_is_predicted_from_one_that_did_not() {
        let longer = Shape { steps: 9, ..Shape::default() };
        let laws = laws(&training(&longer, 8), &[&training(&Shape::default(), 2)]);
        let sizes = training(&longer, 64).program.allocations;
        for (found, allocation) in laws.iter().zip(sizes) {
            assert_eq!(found.law.at(64), allocation.size);
        }
    }

    #[test]
    fn a_square_is_found_by_three_runs() {
        let shape = Shape { compares_all: true, ..Shape::default() };
        let laws = laws(&training(&shape, 32), &[&training(&shape, 2), &training(&shape, 8)]);
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
        let laws = laws(&probes[2], &[&probes[0], &probes[1]]);
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
