//! Checks a plan with a slow and simple algorithm.
//!
//! This file uses only the planner's data types, so that a bug in the planner cannot hide here. It compares every pair
//! of buffers that are live at the same time, in 128 bits.

use crate::{Buffer, Plan, Problem};

/// A violation of the plan's rules.
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
    /// The height is not the maximum end of a buffer.
    #[error("plan states height {stated}, but its buffers reach {actual}")]
    Height {
        /// Height in the plan.
        stated: u64,
        /// Height of the buffers.
        actual: u128,
    },
    /// The plan exceeds the capacity.
    #[error("plan height {height} exceeds capacity {capacity}")]
    Capacity {
        /// Height of the plan.
        height: u64,
        /// Capacity of the problem.
        capacity: u64,
    },
}

/// Checks that a plan solves a problem; returns the first violation.
pub fn validate(problem: &Problem, plan: &Plan) -> Result<(), Violation> {
    let buffers = &problem.buffers;
    if plan.offsets.len() != buffers.len() {
        return Err(Violation::Length { offsets: plan.offsets.len(), buffers: buffers.len() });
    }
    let end = |index: usize| u128::from(plan.offsets[index]) + u128::from(buffers[index].size);
    let mut placed: Vec<usize> = (0..buffers.len()).filter(|&index| !buffers[index].is_empty()).collect();
    placed.sort_by_key(|&index| buffers[index].lower);
    let mut height = 0;
    for (nth, &first) in placed.iter().enumerate() {
        let Buffer { upper, alignment, .. } = buffers[first];
        let offset = plan.offsets[first];
        if !offset.is_multiple_of(alignment.max(1)) {
            return Err(Violation::Misaligned { buffer: first, offset, alignment });
        }
        height = height.max(end(first));
        // Later buffers in the list start no earlier, so they overlap in time if they start before this one ends.
        let later = placed[nth + 1..].iter().take_while(|&&second| buffers[second].lower < upper);
        for &second in later {
            let below = end(first) <= u128::from(plan.offsets[second]);
            let above = end(second) <= u128::from(offset);
            if !below && !above {
                return Err(Violation::Overlap { first: first.min(second), second: first.max(second) });
            }
        }
    }
    if height != u128::from(plan.height) {
        return Err(Violation::Height { stated: plan.height, actual: height });
    }
    match problem.capacity {
        Some(capacity) if plan.height > capacity => {
            Err(Violation::Capacity { height: plan.height, capacity })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(buffers: &[Buffer], offsets: &[u64], height: u64) -> Result<(), Violation> {
        let problem = Problem { buffers: buffers.to_vec(), capacity: Some(10) };
        validate(&problem, &Plan { offsets: offsets.to_vec(), height })
    }

    #[test]
    fn accepts_what_is_right() {
        let buffers = [Buffer::new(0, 10, 4), Buffer::new(0, 5, 6), Buffer::new(5, 10, 6).aligned(4)];
        assert_eq!(check(&buffers, &[0, 4, 4], 10), Ok(()));
        assert_eq!(check(&[], &[], 0), Ok(()));
    }

    #[test]
    fn finds_each_mistake() {
        let buffers = [Buffer::new(0, 10, 4), Buffer::new(9, 12, 6).aligned(4)];
        assert_eq!(check(&buffers, &[0], 10), Err(Violation::Length { offsets: 1, buffers: 2 }));
        assert_eq!(check(&buffers, &[5, 0], 9), Err(Violation::Overlap { first: 0, second: 1 }));
        assert_eq!(
            check(&buffers, &[0, 6], 12),
            Err(Violation::Misaligned { buffer: 1, offset: 6, alignment: 4 })
        );
        assert_eq!(check(&buffers, &[0, 4], 9), Err(Violation::Height { stated: 9, actual: 10 }));
        assert_eq!(check(&buffers, &[0, 8], 14), Err(Violation::Capacity { height: 14, capacity: 10 }));
    }

    #[test]
    fn an_end_beyond_64_bits_is_a_wrong_height() {
        let buffers = [Buffer::new(0, 1, 2)];
        let actual = u128::from(u64::MAX) + 2;
        assert_eq!(check(&buffers, &[u64::MAX], 1), Err(Violation::Height { stated: 1, actual }));
    }
}
