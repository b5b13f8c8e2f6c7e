//! The bins of TensorFlow's and JAX's allocator ("best fit with coalescing").
//!
//! ```text
//! bin     0         1          2          …   20
//! holes   256–511   512–1023   1024–2047  …   268435456 and more
//! ```
//!
//! The search begins in the bin of the request and takes the first hole that fits, smallest and lowest first. Bins
//! are ordered, so that is best fit. What sets the policy apart is when a hole is cut: only if the rest is at least
//! as large as the request, or as large as may be wasted at most.

use std::collections::BTreeMap;

use crate::space::{Hole, Index};
use crate::tiles::TileId;

/// The size from which the first bin counts.
const LEAST: u64 = 256;
/// How many bins there are; the last is open.
const COUNT: usize = 21;
/// A rest of this size is never given away with a block.
const MOST_WASTE: u64 = 128 << 20;

/// Holes in bins by powers of two.
#[derive(Clone, Debug, Default)]
pub struct Bins {
    by_power: [BTreeMap<(u64, u64), TileId>; COUNT],
    /// Bit `b` is set if bin `b` has holes.
    filled: u32,
    len: usize,
}

fn bin_of(size: u64) -> usize {
    ((size / LEAST).max(1).ilog2() as usize).min(COUNT - 1)
}

impl Bins {
    /// The first hole at or behind a key, in the key's bin or the next one that has any.
    fn at_or_behind(&self, size: u64, offset: u64) -> Option<Hole> {
        let bin = bin_of(size);
        let within = self.by_power[bin].range((size, offset)..).next();
        let found = within.or_else(|| {
            let above = self.filled.checked_shr(bin as u32 + 1)?;
            let skipped = (above != 0).then(|| above.trailing_zeros() as usize)?;
            self.by_power[bin + 1 + skipped].first_key_value()
        })?;
        let (&(size, offset), &tile) = found;
        Some(Hole { size, offset, tile })
    }
}

impl Index for Bins {
    fn insert(&mut self, hole: Hole) {
        let bin = bin_of(hole.size);
        self.by_power[bin].insert((hole.size, hole.offset), hole.tile);
        self.filled |= 1 << bin;
        self.len += 1;
    }

    fn remove(&mut self, hole: Hole) {
        let bin = bin_of(hole.size);
        if self.by_power[bin].remove(&(hole.size, hole.offset)).is_some() {
            self.len -= 1;
        }
        if self.by_power[bin].is_empty() {
            self.filled &= !(1 << bin);
        }
    }

    fn first(&self, size: u64) -> Option<Hole> {
        self.at_or_behind(size, 0)
    }

    fn next(&self, _size: u64, refused: Hole) -> Option<Hole> {
        self.at_or_behind(refused.size, refused.offset.checked_add(1)?)
    }

    fn largest(&self) -> u64 {
        let last = self.filled.checked_ilog2().and_then(|bin| self.by_power[bin as usize].last_key_value());
        last.map_or(0, |(&(size, _), _)| size)
    }

    fn len(&self) -> usize {
        self.len
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
    fn bins_double_from_256_and_the_last_is_open() {
        let sizes = [0, 256, 511, 512, 1023, 1024, 256 << 20, u64::MAX];
        assert_eq!(sizes.map(bin_of), [0, 0, 0, 1, 1, 2, 20, 20]);
    }

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
