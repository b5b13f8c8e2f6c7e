//! A space of regions under a policy: tiles, and an index of the free ones.
//!
//! Splitting, merging and accounting are the same for every policy and are implemented here once. A policy is an
//! [`Index`]: the order in which it offers holes, and whether it splits a hole that is larger than the request.
//!
//! Every operation costs one lookup and a few index operations, O(log n) each. Only alignments above the grain can cost
//! more, because holes in which the aligned request does not fit are skipped one by one.

use makeroom_core::FastMap;

use crate::bins::Bins;
use crate::by_address::ByAddress;
use crate::by_size::BySize;
use crate::placement::{NotPlaced, Offset, Placement, Region, Report};
use crate::tiles::{TileId, Tiles};

/// Regions start at multiples of this, the driver's page size, so an offset has the same alignment as its address.
pub const REGION_ALIGNMENT: u64 = 2 << 20;

/// Best fit: the smallest hole that fits; among equals, the lowest. Always splits exactly.
pub type BestFit = Space<BySize>;
/// First fit: the lowest hole that fits. Always splits exactly.
pub type FirstFit = Space<ByAddress>;
/// The allocator of TensorFlow and JAX: bins by powers of two; splits only if much memory would be wasted.
pub type Bfc = Space<Bins>;

/// A free tile as stored in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Its size.
    pub size: u64,
    /// Its start.
    pub offset: u64,
    /// Its tile.
    pub tile: TileId,
}

/// The free tiles of a space, in the order of a policy.
pub trait Index: Default {
    /// Adds a hole.
    fn insert(&mut self, hole: Hole);

    /// Removes a hole that was added with the same values.
    fn remove(&mut self, hole: Hole);

    /// The policy's first choice among the holes of at least `size` bytes.
    fn first(&self, size: u64) -> Option<Hole>;

    /// The policy's next choice after `refused`, the last one it offered.
    fn next(&self, size: u64, refused: Hole) -> Option<Hole>;

    /// The size of the largest hole; 0 if there are none.
    fn largest(&self) -> u64;

    /// The number of holes.
    fn len(&self) -> usize;

    /// Whether there are no holes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether to split a hole of `available` bytes when `size` bytes of it are used.
    fn is_cut(&self, available: u64, size: u64) -> bool {
        available > size
    }
}

/// A space managed by the policy of its index.
#[derive(Clone, Debug)]
pub struct Space<I> {
    /// Sizes are multiples of it.
    grain: u64,
    tiles: Tiles,
    index: I,
    /// The tile of each block, by offset.
    placed: FastMap<u64, TileId>,
    capacity: u64,
    used: u64,
    /// Where the next region may start.
    end: u64,
}

impl<I: Index> Space<I> {
    /// Creates a space without regions, whose sizes are multiples of `grain`, a power of two.
    pub fn new(grain: u64) -> Self {
        debug_assert!(grain.is_power_of_two());
        Self {
            grain,
            tiles: Tiles::default(),
            index: I::default(),
            placed: FastMap::default(),
            capacity: 0,
            used: 0,
            end: 0,
        }
    }

    /// Rounds a request up to the grain; `None` on overflow.
    fn round(&self, size: u64) -> Option<u64> {
        size.max(1).checked_next_multiple_of(self.grain)
    }

    fn hole(&self, tile: TileId) -> Hole {
        let &crate::tiles::Tile { size, offset, .. } = self.tiles.get(tile);
        Hole { size, offset, tile }
    }

    /// The preferred hole in which the aligned request fits, and the offset of the request in it.
    fn find(&self, size: u64, alignment: u64) -> Option<(Hole, u64)> {
        let mut hole = self.index.first(size)?;
        loop {
            let padding = hole.offset.checked_next_multiple_of(alignment)? - hole.offset;
            if padding.checked_add(size)? <= hole.size {
                return Some((hole, padding));
            }
            hole = self.index.next(size, hole)?;
        }
    }
}

impl<I: Index> Placement for Space<I> {
    fn place(&mut self, size: u64, alignment: u64) -> Option<Offset> {
        if !alignment.is_power_of_two() {
            return None;
        }
        let size = self.round(size)?;
        let (hole, padding) = self.find(size, alignment)?;
        self.index.remove(hole);
        let mut tile = hole.tile;
        if padding > 0 {
            let front = tile;
            tile = self.tiles.split(front, padding);
            self.index.insert(self.hole(front));
        }
        let available = self.tiles.get(tile).size;
        if available > size && self.index.is_cut(available, size) {
            let rest = self.tiles.split(tile, size);
            self.index.insert(self.hole(rest));
        }
        self.tiles.set_free(tile, false);
        let placed = self.hole(tile);
        self.used += placed.size;
        self.placed.insert(placed.offset, tile);
        Some(Offset(placed.offset))
    }

    fn free(&mut self, offset: Offset) -> Result<u64, NotPlaced> {
        let mut tile = self.placed.remove(&offset.0).ok_or(NotPlaced(offset))?;
        let size = self.tiles.get(tile).size;
        self.used -= size;
        self.tiles.set_free(tile, true);
        if let Some(next) = self.tiles.mergeable_next(tile) {
            self.index.remove(self.hole(next));
            self.tiles.absorb_next(tile);
        }
        if let Some(previous) = self.tiles.mergeable_previous(tile) {
            self.index.remove(self.hole(previous));
            self.tiles.absorb_next(previous);
            tile = previous;
        }
        self.index.insert(self.hole(tile));
        Ok(size)
    }

    fn size_at(&self, offset: Offset) -> Option<u64> {
        self.placed.get(&offset.0).map(|&tile| self.tiles.get(tile).size)
    }

    fn grow(&mut self, size: u64) -> Option<Region> {
        let size = size - size % self.grain;
        let offset = self.end;
        let end = offset.checked_add(size)?.checked_next_multiple_of(REGION_ALIGNMENT)?;
        if size == 0 {
            return None;
        }
        self.end = end;
        self.capacity += size;
        let tile = self.tiles.add_region(offset, size, 0);
        self.index.insert(self.hole(tile));
        Some(Region { offset: Offset(offset), size })
    }

    fn shrink(&mut self) -> Vec<Region> {
        let mut regions = Vec::new();
        let mut next = self.index.first(0);
        while let Some(hole) = next {
            // Look up the next hole first: the index cannot continue from a hole that was removed.
            next = self.index.next(0, hole);
            if self.tiles.get(hole.tile).is_whole_region() {
                self.index.remove(hole);
                self.tiles.remove_region(hole.tile);
                self.capacity -= hole.size;
                regions.push(Region { offset: Offset(hole.offset), size: hole.size });
            }
        }
        regions
    }

    fn report(&self) -> Report {
        Report {
            capacity: self.capacity,
            used: self.used,
            free: self.capacity - self.used,
            largest_free: self.index.largest(),
            holes: self.index.len(),
            blocks: self.placed.len(),
        }
    }
}
