//! The allocator of TensorFlow and JAX ("best fit with coalescing", BFC).
//!
//! The original keeps holes in 21 bins, one for each power of two from 256 bytes on. A search starts in the request's
//! bin and takes the first hole that fits, smallest and lowest first. Since the bins are ordered by size, this is best
//! fit, and this file stores holes as best fit does. The difference is when a hole is split: only if the remainder is
//! at least as large as the request, or at least as large as the maximum waste.

use crate::by_size::BySize;
use crate::space::{Hole, Index};

/// A remainder of this size is always split off.
const MOST_WASTE: u64 = 128 << 20;

/// Holes in BFC's order, with its rule for splitting.
#[derive(Clone, Debug, Default)]
pub struct Bins {
    holes: BySize,
}

impl Index for Bins {
    fn insert(&mut self, hole: Hole) {
        self.holes.insert(hole);
    }

    fn remove(&mut self, hole: Hole) {
        self.holes.remove(hole);
    }

    fn first(&self, size: u64) -> Option<Hole> {
        self.holes.first(size)
    }

    fn next(&self, size: u64, refused: Hole) -> Option<Hole> {
        self.holes.next(size, refused)
    }

    fn largest(&self) -> u64 {
        self.holes.largest()
    }

    fn len(&self) -> usize {
        self.holes.len()
    }

    fn is_cut(&self, available: u64, size: u64) -> bool {
        available / 2 >= size || available - size >= MOST_WASTE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bfc, Placement};

    #[test]
    fn a_hole_is_handed_out_whole_unless_half_of_it_is_left() {
        let mut space = Bfc::new(256);
        space.grow(1024).unwrap();
        let first = space.place(600, 256).unwrap();
        assert_eq!(space.size_at(first), Some(1024));
        space.free(first).unwrap();
        let half = space.place(512, 256).unwrap();
        assert_eq!(space.size_at(half), Some(512));
    }

    #[test]
    fn a_rest_of_128_mib_is_cut_off_whatever_the_share() {
        let mut space = Bfc::new(256);
        space.grow(1 << 30).unwrap();
        let most = space.place((1 << 30) - MOST_WASTE, 256).unwrap();
        assert_eq!(space.report().largest_free, MOST_WASTE);
        space.free(most).unwrap();
        space.place((1 << 30) - MOST_WASTE + 256, 256).unwrap();
        assert_eq!(space.report().free, 0);
    }
}
