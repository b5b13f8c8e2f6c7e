//! The unplaced load of each section, with fast queries for the fullest section of a range.
//!
//! A segment tree with lazy subtraction: `value(section)` is its leaf minus everything subtracted at the nodes above
//! it.

use std::ops::Range;

#[derive(Debug, Clone)]
pub(crate) struct Pressure {
    /// Maximum value below each node, without subtractions above it.
    greatest: Vec<u64>,
    lowered: Vec<u64>,
    leaves: usize,
}

impl Pressure {
    pub(crate) fn new(load: &[u64]) -> Self {
        let leaves = load.len().next_power_of_two();
        let mut tree = Self { greatest: vec![0; 2 * leaves], lowered: vec![0; 2 * leaves], leaves };
        tree.reset(load);
        tree
    }

    /// Resets to these values.
    pub(crate) fn reset(&mut self, load: &[u64]) {
        self.lowered.fill(0);
        self.greatest[self.leaves..self.leaves + load.len()].copy_from_slice(load);
        for node in (1..self.leaves).rev() {
            self.greatest[node] = self.greatest[2 * node].max(self.greatest[2 * node + 1]);
        }
    }

    /// Subtracts `amount` from every section of a range, all of which are at least that large.
    pub(crate) fn lower(&mut self, range: Range<usize>, amount: u64) {
        self.lower_below(1, 0, self.leaves, &range, amount);
    }

    fn lower_below(&mut self, node: usize, start: usize, length: usize, range: &Range<usize>, amount: u64) {
        if range.end <= start || start + length <= range.start {
            return;
        }
        if range.start <= start && start + length <= range.end {
            self.greatest[node] -= amount;
            self.lowered[node] += amount;
            return;
        }
        let half = length / 2;
        self.lower_below(2 * node, start, half, range, amount);
        self.lower_below(2 * node + 1, start + half, half, range, amount);
        self.greatest[node] = self.greatest[2 * node].max(self.greatest[2 * node + 1]) - self.lowered[node];
    }

    /// The first section of a range with the maximum value.
    pub(crate) fn fullest(&self, range: Range<usize>) -> usize {
        let mut best = None;
        self.fullest_below(1, 0, self.leaves, &range, 0, &mut best);
        let Some((_, mut node)) = best else { return range.start };
        while node < self.leaves {
            node *= 2;
            if self.greatest[node] < self.greatest[node + 1] {
                node += 1;
            }
        }
        node - self.leaves
    }

    /// Finds the leftmost node within the range with the maximum value.
    fn fullest_below(
        &self,
        node: usize,
        start: usize,
        length: usize,
        range: &Range<usize>,
        lowered: u64,
        best: &mut Option<(u64, usize)>,
    ) {
        if range.end <= start || start + length <= range.start {
            return;
        }
        if range.start <= start && start + length <= range.end {
            let greatest = self.greatest[node] - lowered;
            if best.is_none_or(|(value, _)| greatest > value) {
                *best = Some((greatest, node));
            }
            return;
        }
        let (half, lowered) = (length / 2, lowered + self.lowered[node]);
        self.fullest_below(2 * node, start, half, range, lowered, best);
        self.fullest_below(2 * node + 1, start + half, half, range, lowered, best);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_plain_list(
            load in prop::collection::vec(100..200_u64, 1..20),
            ranges in prop::collection::vec((0..20_usize, 0..20_usize, 0..5_u64), 0..20),
        ) {
            let mut tree = Pressure::new(&load);
            let mut plain = load.clone();
            for (one, other, amount) in ranges {
                let (start, end) = (one.min(other) % load.len(), one.max(other).min(load.len() - 1) + 1);
                if start < end {
                    tree.lower(start..end, amount);
                    plain[start..end].iter_mut().for_each(|value| *value -= amount);
                    let greatest = plain[start..end].iter().max().copied();
                    let expected = (start..end).find(|&section| Some(plain[section]) == greatest);
                    prop_assert_eq!(Some(tree.fullest(start..end)), expected);
                }
            }
        }
    }
}
