//! First fit: holes by offset; each node stores the largest hole in its subtree.
//!
//! Finding the lowest hole of at least n bytes requires both an order and a maximum, which no map in the standard
//! library provides. This is a treap: a search tree by offset that is also a heap by a random rank per node, which
//! keeps the depth at O(log n) without rebalancing rules. Subtrees are indices into one table.
//!
//! Invariants, for each node: left offsets < its offset < right offsets; its rank ≥ its children's ranks; `largest` =
//! the maximum of its own size and its children's `largest`.

use crate::space::{Hole, Index};

/// An index into the table; `NONE` is no node.
type NodeId = u32;
const NONE: NodeId = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    hole: Hole,
    rank: u32,
    left: NodeId,
    right: NodeId,
    largest: u64,
}

/// Holes ordered by offset.
#[derive(Clone, Debug)]
pub struct ByAddress {
    table: Vec<Node>,
    vacant: Vec<NodeId>,
    root: NodeId,
    /// State of the rank generator. Any sequence without a pattern would do; this one is the same in every run.
    random: u32,
}

impl Default for ByAddress {
    fn default() -> Self {
        Self { table: Vec::new(), vacant: Vec::new(), root: NONE, random: 0x9e37_79b9 }
    }
}

impl ByAddress {
    fn node(&self, id: NodeId) -> &Node {
        &self.table[id as usize]
    }

    fn largest_of(&self, id: NodeId) -> u64 {
        if id == NONE { 0 } else { self.node(id).largest }
    }

    /// Attaches two subtrees to a node and updates its maximum.
    fn link(&mut self, id: NodeId, left: NodeId, right: NodeId) {
        let largest = self.largest_of(left).max(self.largest_of(right));
        let node = &mut self.table[id as usize];
        node.left = left;
        node.right = right;
        node.largest = largest.max(node.hole.size);
    }

    /// Splits a tree at an offset.
    fn cut(&mut self, id: NodeId, offset: u64) -> (NodeId, NodeId) {
        if id == NONE {
            return (NONE, NONE);
        }
        let Node { hole, left, right, .. } = *self.node(id);
        if hole.offset < offset {
            let (below, above) = self.cut(right, offset);
            self.link(id, left, below);
            (id, above)
        } else {
            let (below, above) = self.cut(left, offset);
            self.link(id, above, right);
            (below, id)
        }
    }

    /// Joins two trees; all offsets of the first are below those of the second.
    fn join(&mut self, low: NodeId, high: NodeId) -> NodeId {
        if low == NONE {
            return high;
        }
        if high == NONE {
            return low;
        }
        if self.node(low).rank >= self.node(high).rank {
            let Node { left, right, .. } = *self.node(low);
            let joined = self.join(right, high);
            self.link(low, left, joined);
            low
        } else {
            let Node { left, right, .. } = *self.node(high);
            let joined = self.join(low, left);
            self.link(high, joined, right);
            high
        }
    }

    fn insert_below(&mut self, id: NodeId, new: NodeId) -> NodeId {
        let offset = self.node(new).hole.offset;
        if id == NONE || self.node(new).rank > self.node(id).rank {
            let (below, above) = self.cut(id, offset);
            self.link(new, below, above);
            return new;
        }
        let Node { hole, left, right, .. } = *self.node(id);
        if offset < hole.offset {
            let left = self.insert_below(left, new);
            self.link(id, left, right);
        } else {
            let right = self.insert_below(right, new);
            self.link(id, left, right);
        }
        id
    }

    fn remove_below(&mut self, id: NodeId, offset: u64) -> NodeId {
        if id == NONE {
            return NONE;
        }
        let Node { hole, left, right, .. } = *self.node(id);
        if hole.offset == offset {
            self.vacant.push(id);
            return self.join(left, right);
        }
        if offset < hole.offset {
            let left = self.remove_below(left, offset);
            self.link(id, left, right);
        } else {
            let right = self.remove_below(right, offset);
            self.link(id, left, right);
        }
        id
    }

    /// The lowest hole of a subtree that has at least `size` bytes and starts at or above `from`.
    fn lowest(&self, id: NodeId, size: u64, from: u64) -> Option<Hole> {
        if id == NONE || self.node(id).largest < size {
            return None;
        }
        let node = self.node(id);
        if node.hole.offset < from {
            return self.lowest(node.right, size, from);
        }
        self.lowest(node.left, size, from)
            .or_else(|| (node.hole.size >= size).then_some(node.hole))
            .or_else(|| self.lowest(node.right, size, from))
    }

    /// The next number of Marsaglia's xorshift generator.
    fn next_rank(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random
    }
}

impl Index for ByAddress {
    fn insert(&mut self, hole: Hole) {
        let rank = self.next_rank();
        let node = Node { hole, rank, left: NONE, right: NONE, largest: hole.size };
        let new = self.vacant.pop().unwrap_or_else(|| {
            self.table.push(node);
            self.table.len() as NodeId - 1
        });
        self.table[new as usize] = node;
        self.root = self.insert_below(self.root, new);
    }

    fn remove(&mut self, hole: Hole) {
        self.root = self.remove_below(self.root, hole.offset);
    }

    fn first(&self, size: u64) -> Option<Hole> {
        self.lowest(self.root, size, 0)
    }

    fn next(&self, size: u64, refused: Hole) -> Option<Hole> {
        self.lowest(self.root, size, refused.offset.checked_add(1)?)
    }

    fn largest(&self) -> u64 {
        self.largest_of(self.root)
    }

    fn len(&self) -> usize {
        self.table.len() - self.vacant.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiles::Tiles;

    fn depth(index: &ByAddress, id: NodeId) -> usize {
        if id == NONE {
            return 0;
        }
        let node = index.node(id);
        1 + depth(index, node.left).max(depth(index, node.right))
    }

    #[test]
    fn a_sorted_sequence_does_not_make_a_deep_tree() {
        let tile = Tiles::default().add_region(0, 1, 0);
        let mut index = ByAddress::default();
        for offset in 0..10_000 {
            index.insert(Hole { size: 1 + offset % 7, offset, tile });
        }
        assert!(depth(&index, index.root) < 50);
        for offset in 0..9_999 {
            index.remove(Hole { size: 1 + offset % 7, offset, tile });
        }
        assert_eq!((index.len(), index.first(0).unwrap().offset), (1, 9_999));
    }
}
