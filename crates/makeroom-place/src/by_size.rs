//! Best fit: holes by size, then by offset.

use crate::size_map::SizeMap;
use crate::space::{Hole, Index};
use crate::tiles::TileId;

/// Holes in best-fit order.
#[derive(Clone, Debug, Default)]
pub struct BySize {
    holes: SizeMap<TileId>,
}

impl BySize {
    /// All holes, smallest first.
    pub fn iter(&self) -> impl Iterator<Item = Hole> + '_ {
        self.holes.iter_from(0).map(hole)
    }
}

fn hole((size, offset, tile): (u64, u64, TileId)) -> Hole {
    Hole { size, offset, tile }
}

impl Index for BySize {
    fn insert(&mut self, hole: Hole) {
        self.holes.insert(hole.size, hole.offset, hole.tile);
    }

    fn remove(&mut self, hole: Hole) {
        self.holes.remove(hole.size, hole.offset);
    }

    fn first(&self, size: u64) -> Option<Hole> {
        self.holes.first_from(size, 0).map(hole)
    }

    fn next(&self, _size: u64, refused: Hole) -> Option<Hole> {
        self.holes.first_from(refused.size, refused.offset.checked_add(1)?).map(hole)
    }

    fn largest(&self) -> u64 {
        self.holes.largest()
    }

    fn len(&self) -> usize {
        self.holes.len()
    }
}
