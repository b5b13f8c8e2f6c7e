//! Best fit: holes by size, those of equal size by offset.

use std::collections::BTreeMap;

use crate::space::{Hole, Index};
use crate::tiles::TileId;

/// Holes in the order of best fit.
#[derive(Clone, Debug, Default)]
pub struct BySize {
    holes: BTreeMap<(u64, u64), TileId>,
}

impl BySize {
    /// All holes, smallest first.
    pub fn iter(&self) -> impl Iterator<Item = Hole> + '_ {
        self.holes.iter().map(hole)
    }
}

fn hole((&(size, offset), &tile): (&(u64, u64), &TileId)) -> Hole {
    Hole { size, offset, tile }
}

impl Index for BySize {
    fn insert(&mut self, hole: Hole) {
        self.holes.insert((hole.size, hole.offset), hole.tile);
    }

    fn remove(&mut self, hole: Hole) {
        self.holes.remove(&(hole.size, hole.offset));
    }

    fn first(&self, size: u64) -> Option<Hole> {
        self.holes.range((size, 0)..).next().map(hole)
    }

    fn next(&self, _size: u64, refused: Hole) -> Option<Hole> {
        self.holes.range((refused.size, refused.offset.checked_add(1)?)..).next().map(hole)
    }

    fn largest(&self) -> u64 {
        self.holes.last_key_value().map_or(0, |(&(size, _), _)| size)
    }

    fn len(&self) -> usize {
        self.holes.len()
    }
}
