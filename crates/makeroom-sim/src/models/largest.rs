//! The largest tile of each list, in a segment tree: which list is the first with a tile of at least some size?
//!
//! A program may use thousands of streams, each with its own list. Searching all lists for every request would be
//! quadratic; the tree needs logarithmic time.
//!
//! `nodes[i] = max(nodes[2i], nodes[2i + 1])`; the leaves are the second half of `nodes`.

/// The largest size in each list; 0 for an empty list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Largest {
    nodes: Vec<u64>,
}

impl Largest {
    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    /// Sets the largest size of a list.
    pub(crate) fn set(&mut self, list: u32, size: u64) {
        let list = list as usize;
        if list >= self.leaves() {
            self.grow(list + 1);
        }
        let mut node = self.leaves() + list;
        if self.nodes[node] == size {
            return;
        }
        self.nodes[node] = size;
        while node > 1 {
            node /= 2;
            let larger = self.nodes[2 * node].max(self.nodes[2 * node + 1]);
            // What is above does not change either.
            if self.nodes[node] == larger {
                return;
            }
            self.nodes[node] = larger;
        }
    }

    /// The first list whose largest tile has at least this size, which must not be 0.
    pub(crate) fn first_at_least(&self, size: u64) -> Option<u32> {
        self.next_at_least(0, size)
    }

    /// The same among the lists from `from` on.
    pub(crate) fn next_at_least(&self, from: u32, size: u64) -> Option<u32> {
        let leaves = self.leaves();
        if from as usize >= leaves {
            return None;
        }
        // Go up to the first subtree at or after `from` that contains such a list, then down to the list.
        let mut node = leaves + from as usize;
        while self.nodes[node] < size {
            while node % 2 == 1 {
                node /= 2;
                if node <= 1 {
                    return None;
                }
            }
            node += 1;
        }
        while node < self.leaves() {
            node *= 2;
            if self.nodes[node] < size {
                node += 1;
            }
        }
        Some((node - self.leaves()) as u32)
    }

    fn grow(&mut self, lists: usize) {
        let leaves = lists.next_power_of_two().max(8);
        let mut nodes = vec![0; 2 * leaves];
        nodes[leaves..leaves + self.leaves()].copy_from_slice(&self.nodes[self.leaves()..]);
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node].max(nodes[2 * node + 1]);
        }
        self.nodes = nodes;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_finds_what_a_search_through_all_lists_finds(
            sets in prop::collection::vec((0_u32..40, 0_u64..100), 0..200),
            size in 1_u64..100,
        ) {
            let (mut largest, mut plain) = (Largest::default(), [0_u64; 40]);
            for (list, size) in sets {
                largest.set(list, size);
                plain[list as usize] = size;
            }
            let expected = plain.iter().position(|&largest| largest >= size).map(|list| list as u32);
            prop_assert_eq!(largest.first_at_least(size), expected);
            for from in 0..40 {
                let expected = (from..40).find(|&list| plain[list as usize] >= size);
                prop_assert_eq!(largest.next_at_least(from, size), expected);
            }
        }
    }
}
