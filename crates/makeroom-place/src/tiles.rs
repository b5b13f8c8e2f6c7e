//! Regions divided into tiles: every byte of a region belongs to exactly one tile.
//!
//! Tiles link to their neighbors, so a freed tile merges in constant time. They are handles into one table, whose
//! vacated entries are reused, so the table is only as large as the highest number of tiles at any time.
//!
//! Invariants, for each region: its tiles are contiguous, Σ tile sizes = region size, and `previous` and `next` mirror
//! each other. Callers must ensure that no two free neighbors have the same owner, by merging when they free.

use std::num::NonZeroU32;

/// The index of a tile in the table, plus one, so that `Option<TileId>` needs no extra space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileId(NonZeroU32);

impl TileId {
    /// Its index in the table, for parallel tables.
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Part of a region.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    /// Its start.
    pub offset: u64,
    /// Its size; never 0.
    pub size: u64,
    /// The tile before it in the same region.
    pub previous: Option<TileId>,
    /// The tile after it in the same region.
    pub next: Option<TileId>,
    /// The owner of the list it is in while free. Only tiles of the same owner merge; a space without lists has one
    /// owner.
    pub owner: u32,
    /// Whether it holds no block.
    pub is_free: bool,
}

impl Tile {
    /// Its end, exclusive.
    pub fn end(&self) -> u64 {
        self.offset + self.size
    }

    /// Whether it covers its whole region.
    pub fn is_whole_region(&self) -> bool {
        self.previous.is_none() && self.next.is_none()
    }
}

/// All tiles of a space.
#[derive(Clone, Debug, Default)]
pub struct Tiles {
    table: Vec<Tile>,
    vacant: Vec<TileId>,
}

impl Tiles {
    /// The tile of a handle.
    pub fn get(&self, id: TileId) -> &Tile {
        &self.table[id.index()]
    }

    /// Adds a region as one free tile.
    pub fn add_region(&mut self, offset: u64, size: u64, owner: u32) -> TileId {
        self.add(Tile { offset, size, previous: None, next: None, owner, is_free: true })
    }

    /// Removes a tile that covers its whole region.
    pub fn remove_region(&mut self, id: TileId) {
        debug_assert!(self.get(id).is_whole_region());
        self.vacant.push(id);
    }

    /// Sets whether a tile is free.
    pub fn set_free(&mut self, id: TileId, is_free: bool) {
        self.table[id.index()].is_free = is_free;
    }

    /// Moves a tile to another owner's list.
    pub fn set_owner(&mut self, id: TileId, owner: u32) {
        self.table[id.index()].owner = owner;
    }

    /// Splits a tile after `size` bytes, more than 0 and less than the tile's size. The tile keeps the front; the rest
    /// becomes a new free tile of the same owner.
    pub fn split(&mut self, id: TileId, size: u64) -> TileId {
        let whole = *self.get(id);
        debug_assert!(0 < size && size < whole.size);
        let rest = self.add(Tile {
            offset: whole.offset + size,
            size: whole.size - size,
            previous: Some(id),
            next: whole.next,
            owner: whole.owner,
            is_free: true,
        });
        if let Some(next) = whole.next {
            self.table[next.index()].previous = Some(rest);
        }
        let front = &mut self.table[id.index()];
        front.size = size;
        front.next = Some(rest);
        rest
    }

    /// The tile after this one, if both are free and have the same owner.
    pub fn mergeable_next(&self, id: TileId) -> Option<TileId> {
        self.get(id).next.filter(|&next| self.can_merge(id, next))
    }

    /// The tile before this one, if both are free and have the same owner.
    pub fn mergeable_previous(&self, id: TileId) -> Option<TileId> {
        self.get(id).previous.filter(|&previous| self.can_merge(previous, id))
    }

    /// Merges the next tile into this one.
    pub fn absorb_next(&mut self, id: TileId) {
        let Some(next) = self.get(id).next else { return };
        let absorbed = *self.get(next);
        let tile = &mut self.table[id.index()];
        tile.size += absorbed.size;
        tile.next = absorbed.next;
        if let Some(after) = absorbed.next {
            self.table[after.index()].previous = Some(id);
        }
        self.vacant.push(next);
    }

    fn can_merge(&self, first: TileId, second: TileId) -> bool {
        let (first, second) = (self.get(first), self.get(second));
        first.is_free && second.is_free && first.owner == second.owner
    }

    fn add(&mut self, tile: Tile) -> TileId {
        if let Some(id) = self.vacant.pop() {
            self.table[id.index()] = tile;
            return id;
        }
        self.table.push(tile);
        TileId(NonZeroU32::MIN.saturating_add(self.table.len() as u32 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_is_cut_and_made_whole_again() {
        let mut tiles = Tiles::default();
        let front = tiles.add_region(0, 100, 0);
        let middle = tiles.split(front, 30);
        let end = tiles.split(middle, 50);
        assert_eq!((tiles.get(middle).offset, tiles.get(end).offset), (30, 80));
        assert_eq!(tiles.get(end).previous, Some(middle));
        tiles.absorb_next(front);
        assert_eq!(tiles.get(end).previous, Some(front));
        tiles.absorb_next(front);
        assert!(tiles.get(front).is_whole_region() && tiles.get(front).size == 100);
    }

    #[test]
    fn tiles_of_two_owners_stay_apart() {
        let mut tiles = Tiles::default();
        let front = tiles.add_region(0, 100, 0);
        let rest = tiles.split(front, 30);
        assert_eq!(tiles.mergeable_next(front), Some(rest));
        tiles.set_owner(rest, 1);
        assert_eq!((tiles.mergeable_next(front), tiles.mergeable_previous(rest)), (None, None));
    }
}
