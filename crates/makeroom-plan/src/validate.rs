//! Checks a plan, independently of the planner.
//!
//! This file uses only the planner's data types, so that a bug in the planner cannot hide here. It sweeps over time and
//! keeps the live buffers sorted by offset: a buffer that starts can overlap only its two neighbors, because the others
//! are disjoint. Ends are computed in 128 bits.

use std::collections::BTreeMap;

use crate::{Buffer, Plan, Problem};

/// A violation of the rules for plans.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The number of offsets differs from the number of buffers.
    #[error("plan has {offsets} offsets for {buffers} buffers")]
    Length {
        /// Offsets in the plan.
        offsets: usize,
        /// Buffers in the problem.
        buffers: usize,
    },
    /// An offset is not a multiple of the alignment.
    #[error("buffer {buffer} is at offset {offset}, not a multiple of {alignment}")]
    Misaligned {
        /// Position of the buffer.
        buffer: usize,
        /// Its offset.
        offset: u64,
        /// Its alignment.
        alignment: u64,
    },
    /// Two buffers overlap in memory at some time.
    #[error("buffers {first} and {second} overlap in time and memory")]
    Overlap {
        /// Position of one buffer.
        first: usize,
        /// Position of the other.
        second: usize,
    },
    /// The peak is not the maximum end of a buffer.
    #[error("plan states a peak of {stated}, but its buffers reach {actual}")]
    Peak {
        /// Peak in the plan.
        stated: u64,
        /// Maximum end of the buffers.
        actual: u128,
    },
    /// The plan exceeds the capacity.
    #[error("peak {peak} exceeds capacity {capacity}")]
    Capacity {
        /// Peak of the plan.
        peak: u64,
        /// Capacity of the problem.
        capacity: u64,
    },
}

/// Checks that a plan solves a problem; returns the first violation. Takes `O(n log n)` time.
pub fn validate(problem: &Problem, plan: &Plan) -> Result<(), Violation> {
    let buffers = &problem.buffers;
    if plan.offsets.len() != buffers.len() {
        return Err(Violation::Length { offsets: plan.offsets.len(), buffers: buffers.len() });
    }
    let mut peak: u128 = 0;
    for index in used(buffers) {
        let (buffer, offset) = (&buffers[index], plan.offsets[index]);
        if !offset.is_multiple_of(buffer.alignment.max(1)) {
            return Err(Violation::Misaligned { buffer: index, offset, alignment: buffer.alignment });
        }
        peak = peak.max(u128::from(offset) + u128::from(buffer.size));
    }
    find_overlap(buffers, &plan.offsets)?;
    if peak != u128::from(plan.peak) {
        return Err(Violation::Peak { stated: plan.peak, actual: peak });
    }
    match problem.capacity {
        Some(capacity) if plan.peak > capacity => Err(Violation::Capacity { peak: plan.peak, capacity }),
        _ => Ok(()),
    }
}

/// The buffers that use memory.
fn used(buffers: &[Buffer]) -> impl Iterator<Item = usize> {
    (0..buffers.len()).filter(|&index| !buffers[index].is_empty())
}

fn find_overlap(buffers: &[Buffer], offsets: &[u64]) -> Result<(), Violation> {
    // Ends sort before starts at the same time, because lifetimes are half-open.
    let mut events: Vec<(u64, bool, usize)> = used(buffers)
        .flat_map(|index| [(buffers[index].lower, true, index), (buffers[index].upper, false, index)])
        .collect();
    events.sort_unstable();
    let end = |index: usize| u128::from(offsets[index]) + u128::from(buffers[index].size);
    let overlap =
        |one: usize, other: usize| Violation::Overlap { first: one.min(other), second: one.max(other) };
    let mut live: BTreeMap<u64, usize> = BTreeMap::new();
    for (_, starts, index) in events {
        let offset = offsets[index];
        if !starts {
            live.remove(&offset);
            continue;
        }
        if let Some((_, &below)) = live.range(..=offset).next_back()
            && end(below) > u128::from(offset)
        {
            return Err(overlap(below, index));
        }
        if let Some((&next, &above)) = live.range(offset..).next()
            && end(index) > u128::from(next)
        {
            return Err(overlap(above, index));
        }
        live.insert(offset, index);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(buffers: &[Buffer], offsets: &[u64], peak: u64) -> Result<(), Violation> {
        let problem = Problem { buffers: buffers.to_vec(), capacity: Some(10) };
        validate(&problem, &Plan { offsets: offsets.to_vec(), peak })
    }

    #[test]
    fn accepts_valid_plans() {
        let buffers = [Buffer::new(0, 10, 4), Buffer::new(0, 5, 6), Buffer::new(5, 10, 6).aligned(4)];
        assert_eq!(check(&buffers, &[0, 4, 4], 10), Ok(()));
        assert_eq!(check(&[], &[], 0), Ok(()));
    }

    #[test]
    fn finds_each_violation() {
        let buffers = [Buffer::new(0, 10, 4), Buffer::new(9, 12, 6).aligned(4)];
        assert_eq!(check(&buffers, &[0], 10), Err(Violation::Length { offsets: 1, buffers: 2 }));
        assert_eq!(check(&buffers, &[5, 0], 9), Err(Violation::Overlap { first: 0, second: 1 }));
        assert_eq!(
            check(&buffers, &[0, 6], 12),
            Err(Violation::Misaligned { buffer: 1, offset: 6, alignment: 4 })
        );
        assert_eq!(check(&buffers, &[0, 4], 9), Err(Violation::Peak { stated: 9, actual: 10 }));
        assert_eq!(check(&buffers, &[0, 8], 14), Err(Violation::Capacity { peak: 14, capacity: 10 }));
    }

    #[test]
    fn an_end_beyond_64_bits_is_a_wrong_peak() {
        let buffers = [Buffer::new(0, 1, 2)];
        let actual = u128::from(u64::MAX) + 2;
        assert_eq!(check(&buffers, &[u64::MAX], 1), Err(Violation::Peak { stated: 1, actual }));
    }

    proptest! {
        #[test]
        fn agrees_with_comparing_all_pairs(
            rows in prop::collection::vec((0..20_u64, 0..8_u64, 0..6_u64, 0..30_u64), 0..12),
        ) {
            let buffers: Vec<Buffer> =
                rows.iter().map(|row| Buffer::new(row.0, row.0 + row.1, row.2)).collect();
            let offsets: Vec<u64> = rows.iter().map(|row| row.3).collect();
            let overlaps = |one: usize, other: usize| {
                let (a, b) = (buffers[one], buffers[other]);
                !a.is_empty() && !b.is_empty() && a.lower < b.upper && b.lower < a.upper
                    && offsets[one] < offsets[other] + b.size && offsets[other] < offsets[one] + a.size
            };
            let expected = (0..rows.len()).any(|one| (0..one).any(|other| overlaps(one, other)));
            match find_overlap(&buffers, &offsets) {
                Ok(()) => prop_assert!(!expected),
                Err(Violation::Overlap { first, second }) => prop_assert!(overlaps(first, second)),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
