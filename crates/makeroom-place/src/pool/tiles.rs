//! All addresses of the pool, divided into tiles: live, pending, free, or unmapped.
//!
//! Tiles link to their neighbors, so a freed tile merges in constant time. They are indices into one table, whose
//! vacated entries are reused. Free and unmapped tiles are also in a bin (`bins.rs`), which is linked through fields
//! here.
//!
//! Invariants, for each range of addresses: its tiles are contiguous, Σ tile sizes = the range's size, `previous` and
//! `next` mirror each other, and no two neighbors are both unmapped or both free in the same list.

/// The index of a tile in the table.
pub(crate) type TileId = u32;

/// No tile.
pub(crate) const NONE: TileId = u32::MAX;

/// The state of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Addresses without memory. Starts and ends at a page boundary.
    Unmapped,
    /// Unused memory.
    Free,
    /// A live block.
    Live,
    /// A freed block that waits for streams.
    Pending,
    /// Not a tile: the entry is vacant.
    Vacant,
}

/// Part of a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// For a block: its requested size. For a free tile: the last fence of its stream before the free; the GPU has
    /// finished using the tile once a later fence has passed.
    pub(crate) figure: u64,
    pub(crate) previous: TileId,
    pub(crate) next: TileId,
    pub(crate) bin_previous: TileId,
    pub(crate) bin_next: TileId,
    /// The list it is in, or would be in if it were free.
    pub(crate) list: u32,
    pub(crate) state: State,
    /// For a block: whether other streams use it too.
    pub(crate) is_shared: bool,
}

impl Tile {
    /// Its end, exclusive.
    pub(crate) fn end(&self) -> u64 {
        self.address + self.size
    }
}

/// All tiles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tiles {
    table: Vec<Tile>,
    vacant: Vec<TileId>,
}

impl std::ops::Index<TileId> for Tiles {
    type Output = Tile;
    fn index(&self, id: TileId) -> &Tile {
        &self.table[id as usize]
    }
}

impl std::ops::IndexMut<TileId> for Tiles {
    fn index_mut(&mut self, id: TileId) -> &mut Tile {
        &mut self.table[id as usize]
    }
}

impl Tiles {
    /// The entry at an index, vacant or not.
    pub(crate) fn get(&self, id: TileId) -> Option<&Tile> {
        self.table.get(id as usize)
    }

    /// The lists of all existing tiles.
    pub(crate) fn lists(&self) -> impl Iterator<Item = u32> + '_ {
        self.table.iter().filter(|tile| tile.state != State::Vacant).map(|tile| tile.list)
    }

    /// Adds a range of addresses as one unmapped tile.
    pub(crate) fn add_range(&mut self, address: u64, size: u64, list: u32) -> TileId {
        self.add(Tile {
            address,
            size,
            figure: 0,
            previous: NONE,
            next: NONE,
            bin_previous: NONE,
            bin_next: NONE,
            list,
            state: State::Unmapped,
            is_shared: false,
        })
    }

    fn add(&mut self, tile: Tile) -> TileId {
        if let Some(id) = self.vacant.pop() {
            self.table[id as usize] = tile;
            return id;
        }
        self.table.push(tile);
        self.table.len() as TileId - 1
    }

    /// Splits a tile in two. Returns the new one, which starts `size` bytes after the start and is otherwise the same.
    pub(crate) fn split(&mut self, id: TileId, size: u64) -> TileId {
        let front = self[id];
        debug_assert!(size > 0 && size < front.size);
        let rest =
            self.add(Tile { address: front.address + size, size: front.size - size, previous: id, ..front });
        if front.next != NONE {
            self[front.next].previous = rest;
        }
        let front = &mut self[id];
        front.size = size;
        front.next = rest;
        rest
    }

    /// Merges a tile with the next one.
    pub(crate) fn absorb_next(&mut self, id: TileId) {
        let next = self[id].next;
        let behind = self[next];
        let tile = &mut self[id];
        tile.size += behind.size;
        tile.next = behind.next;
        if behind.next != NONE {
            self[behind.next].previous = id;
        }
        self[next].state = State::Vacant;
        self.vacant.push(next);
    }

    /// Whether a neighbor is free or unmapped like the tile, and in the same list.
    pub(crate) fn is_like(&self, id: TileId, neighbour: TileId) -> bool {
        neighbour != NONE && self[neighbour].state == self[id].state && self[neighbour].list == self[id].list
    }
}
