//! Finds the unplaced buffer of highest priority whose lifetime is within a range of sections.
//!
//! A k-d tree over the points (first section, last section + 1), where each node stores the best rank below it. A query
//! takes about the square root of the number of buffers in the worst case, a removal its logarithm, and a new ranking
//! one pass.

use std::ops::RangeInclusive;

use crate::instance::Instance;

const LEAF: usize = 8;
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Node {
    first: (u32, u32),
    end: (u32, u32),
    /// Best rank of the unplaced buffers below, or [`NONE`].
    best: u32,
    parent: u32,
    right: u32,
    /// The buffers of a leaf, as a range of `buffers`; empty for an inner node.
    leaf: (u32, u32),
}

/// The unplaced buffers, by lifetime.
#[derive(Debug, Clone)]
pub(crate) struct LifetimeTree {
    nodes: Vec<Node>,
    buffers: Vec<u32>,
    /// First section and end of each entry of `buffers`.
    points: Vec<(u32, u32)>,
    leaf_of: Vec<u32>,
    /// Rank of each buffer, lowest for the highest priority; [`NONE`] once it is removed.
    rank: Vec<u32>,
    by_rank: Vec<u32>,
    pending: Vec<u32>,
    /// Nodes visited so far, as a measure of time.
    pub(crate) work: u64,
}

impl LifetimeTree {
    pub(crate) fn new(instance: &Instance) -> Self {
        let count = instance.len();
        let mut tree = Self {
            nodes: Vec::new(),
            buffers: (0..count as u32).collect(),
            points: Vec::new(),
            leaf_of: vec![0; count],
            rank: vec![NONE; count],
            by_rank: Vec::new(),
            pending: Vec::new(),
            work: 0,
        };
        if count > 0 {
            let mut buffers = std::mem::take(&mut tree.buffers);
            tree.build(instance, &mut buffers, 0, NONE, 0);
            let point = |&buffer: &u32| (instance.first[buffer as usize], instance.end[buffer as usize]);
            tree.points = buffers.iter().map(point).collect();
            tree.buffers = buffers;
        }
        tree
    }

    fn build(&mut self, instance: &Instance, buffers: &mut [u32], start: usize, parent: u32, depth: u32) {
        let index = self.nodes.len();
        let bounds = |values: &[u32]| {
            let of = |&buffer: &u32| values[buffer as usize];
            (buffers.iter().map(of).min().unwrap_or(0), buffers.iter().map(of).max().unwrap_or(0))
        };
        self.nodes.push(Node {
            first: bounds(&instance.first),
            end: bounds(&instance.end),
            best: NONE,
            parent,
            right: 0,
            leaf: (0, 0),
        });
        if buffers.len() <= LEAF {
            self.nodes[index].leaf = (start as u32, (start + buffers.len()) as u32);
            for &buffer in buffers.iter() {
                self.leaf_of[buffer as usize] = index as u32;
            }
            return;
        }
        let middle = buffers.len() / 2;
        let axis = if depth.is_multiple_of(2) { &instance.first } else { &instance.end };
        buffers.select_nth_unstable_by_key(middle, |&buffer| (axis[buffer as usize], buffer));
        let (left, right) = buffers.split_at_mut(middle);
        self.build(instance, left, start, index as u32, depth + 1);
        self.nodes[index].right = self.nodes.len() as u32;
        self.build(instance, right, start + middle, index as u32, depth + 1);
    }

    /// Adds all buffers again, in a new order of priority.
    pub(crate) fn rank(&mut self, by_rank: Vec<u32>) {
        for (rank, &buffer) in by_rank.iter().enumerate() {
            self.rank[buffer as usize] = rank as u32;
        }
        self.by_rank = by_rank;
        for index in (0..self.nodes.len()).rev() {
            self.nodes[index].best = self.best_below(index);
        }
        self.work += self.nodes.len() as u64;
    }

    /// The unplaced buffer of highest priority with first section and end within the given ranges.
    pub(crate) fn find(&mut self, first: &RangeInclusive<u32>, end: &RangeInclusive<u32>) -> Option<usize> {
        let mut best = NONE;
        self.pending.clear();
        if !self.nodes.is_empty() {
            self.pending.push(0);
        }
        while let Some(index) = self.pending.pop() {
            self.work += 1;
            let node = self.nodes[index as usize];
            let apart = node.first.1 < *first.start()
                || node.first.0 > *first.end()
                || node.end.1 < *end.start()
                || node.end.0 > *end.end();
            if node.best >= best || apart {
                continue;
            }
            let inside = first.contains(&node.first.0)
                && first.contains(&node.first.1)
                && end.contains(&node.end.0)
                && end.contains(&node.end.1);
            if inside {
                best = node.best;
            } else if node.right == 0 {
                for slot in node.leaf.0 as usize..node.leaf.1 as usize {
                    let rank = self.rank[self.buffers[slot] as usize];
                    let point = self.points[slot];
                    if rank < best && first.contains(&point.0) && end.contains(&point.1) {
                        best = rank;
                    }
                }
            } else {
                let (left, right) = (index + 1, node.right);
                let left_first = self.nodes[left as usize].best < self.nodes[right as usize].best;
                self.pending.extend(if left_first { [right, left] } else { [left, right] });
            }
        }
        (best != NONE).then(|| self.by_rank[best as usize] as usize)
    }

    /// Removes a buffer.
    pub(crate) fn remove(&mut self, buffer: usize) {
        self.rank[buffer] = NONE;
        let mut index = self.leaf_of[buffer];
        while index != NONE {
            self.work += 1;
            let best = self.best_below(index as usize);
            if best == self.nodes[index as usize].best {
                break;
            }
            self.nodes[index as usize].best = best;
            index = self.nodes[index as usize].parent;
        }
    }

    fn best_below(&self, index: usize) -> u32 {
        let node = &self.nodes[index];
        if node.right == 0 {
            let buffers = &self.buffers[node.leaf.0 as usize..node.leaf.1 as usize];
            buffers.iter().map(|&buffer| self.rank[buffer as usize]).min().unwrap_or(NONE)
        } else {
            self.nodes[index + 1].best.min(self.nodes[node.right as usize].best)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Buffer;
    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_plain_list(
            lifetimes in prop::collection::vec((0..60_u64, 1..30_u64), 1..80),
            queries in prop::collection::vec((0..40_u32, 0..40_u32, 0..40_u32, 0..40_u32), 1..40),
        ) {
            let buffers: Vec<Buffer> =
                lifetimes.iter().map(|&(lower, length)| Buffer::new(lower, lower + length, 1)).collect();
            let instance = Instance::new(&buffers).unwrap();
            let mut tree = LifetimeTree::new(&instance);
            let mut unplaced: Vec<u32> = (0..instance.len() as u32).rev().collect();
            tree.rank(unplaced.clone());
            for (first_low, first_high, end_low, end_high) in queries {
                let (first, end) = (first_low..=first_high, end_low..=end_high);
                let expected = unplaced.iter().position(|&buffer| {
                    first.contains(&instance.first[buffer as usize])
                        && end.contains(&instance.end[buffer as usize])
                });
                let found = tree.find(&first, &end);
                prop_assert_eq!(found, expected.map(|position| unplaced[position] as usize));
                if let Some(position) = expected {
                    tree.remove(unplaced.remove(position) as usize);
                }
            }
        }
    }
}
