//! Free tiles by size: bins, thirty-two to each doubling, and bitmaps of those that hold something.
//!
//! A search costs two bit scans and a short walk: the smallest tile that fits in the request's own bin, and else the
//! smallest of the next bin that holds any, which is best fit to within a walk's length. Nothing is allocated.

use super::tiles::{NONE, Tile, TileId, Tiles};

/// The grain of blocks: sizes and addresses are multiples of it.
pub(crate) const GRAIN: u64 = 512;
/// Bins per doubling, as a power of two.
const SPLIT: u32 = 5;
const PER_DOUBLING: u32 = 1 << SPLIT;
/// Doublings from one grain up to all addresses.
const DOUBLINGS: u32 = 48;
/// How many tiles of a bin are looked at. Bins are narrow, so more would gain little.
const WALK: u32 = 8;

/// The free tiles of one list.
#[derive(Clone, Debug)]
pub(crate) struct Bins {
    heads: Box<[TileId]>,
    /// Which doublings hold a tile.
    doublings: u64,
    /// Which bins of a doubling do.
    within: [u32; DOUBLINGS as usize],
}

impl Default for Bins {
    fn default() -> Self {
        Self {
            heads: vec![NONE; (DOUBLINGS * PER_DOUBLING) as usize].into(),
            doublings: 0,
            within: [0; DOUBLINGS as usize],
        }
    }
}

/// The doubling of a size and the bin within it: sizes below thirty-two grains have a bin each.
fn place(size: u64) -> (u32, u32) {
    let grains = (size / GRAIN).max(1);
    let highest = grains.ilog2();
    if highest < SPLIT {
        return (0, grains as u32);
    }
    let within = (grains >> (highest - SPLIT)) as u32 & (PER_DOUBLING - 1);
    ((highest - SPLIT + 1).min(DOUBLINGS - 1), within)
}

/// The places of the ones in a bitmap, lowest first.
fn ones(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let place = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(place)
    })
}

impl Bins {
    /// Hangs a tile in.
    pub(crate) fn insert(&mut self, tiles: &mut Tiles, id: TileId) {
        let size = tiles[id].size;
        let (doubling, within) = place(size);
        let head = &mut self.heads[(doubling * PER_DOUBLING + within) as usize];
        let first = std::mem::replace(head, id);
        let tile = &mut tiles[id];
        tile.bin_previous = NONE;
        tile.bin_next = first;
        if first != NONE {
            tiles[first].bin_previous = id;
        }
        self.doublings |= 1 << doubling;
        self.within[doubling as usize] |= 1 << within;
    }

    /// Takes a tile out that hangs here with its present size.
    pub(crate) fn remove(&mut self, tiles: &mut Tiles, id: TileId) {
        let Tile { size, bin_previous, bin_next, .. } = tiles[id];
        if bin_next != NONE {
            tiles[bin_next].bin_previous = bin_previous;
        }
        if bin_previous != NONE {
            tiles[bin_previous].bin_next = bin_next;
            return;
        }
        let (doubling, within) = place(size);
        self.heads[(doubling * PER_DOUBLING + within) as usize] = bin_next;
        if bin_next == NONE {
            self.within[doubling as usize] &= !(1 << within);
            if self.within[doubling as usize] == 0 {
                self.doublings &= !(1 << doubling);
            }
        }
    }

    /// The smallest tile of at least `size` bytes, of equal ones the lowest.
    pub(crate) fn find(&self, tiles: &Tiles, size: u64) -> Option<TileId> {
        let (doubling, within) = place(size);
        let bits = self.within[doubling as usize] & (u32::MAX << within);
        if bits & (1 << within) != 0
            && let Some(found) = self.smallest(tiles, doubling, within, size)
        {
            return Some(found);
        }
        let above = bits & !(1 << within);
        if above != 0 {
            return self.smallest(tiles, doubling, above.trailing_zeros(), size);
        }
        let doublings = self.doublings & (u64::MAX << doubling << 1);
        if doublings == 0 {
            return None;
        }
        let doubling = doublings.trailing_zeros();
        self.smallest(tiles, doubling, self.within[doubling as usize].trailing_zeros(), size)
    }

    fn smallest(&self, tiles: &Tiles, doubling: u32, within: u32, size: u64) -> Option<TileId> {
        let mut id = self.heads[(doubling * PER_DOUBLING + within) as usize];
        let mut best: Option<(u64, u64, TileId)> = None;
        let mut walked = 0;
        while id != NONE && walked < WALK {
            let tile = &tiles[id];
            if tile.size >= size
                && best.is_none_or(|(size, address, _)| (tile.size, tile.address) < (size, address))
            {
                best = Some((tile.size, tile.address, id));
            }
            id = tile.bin_next;
            walked += 1;
        }
        best.map(|(_, _, id)| id)
    }

    /// The size of the largest tile; 0 without tiles.
    pub(crate) fn largest(&self, tiles: &Tiles) -> u64 {
        if self.doublings == 0 {
            return 0;
        }
        let doubling = self.doublings.ilog2();
        let within = self.within[doubling as usize].ilog2();
        self.walk(tiles, doubling, within).map(|id| tiles[id].size).max().unwrap_or(0)
    }

    fn walk<'tiles>(
        &self,
        tiles: &'tiles Tiles,
        doubling: u32,
        within: u32,
    ) -> impl Iterator<Item = TileId> + use<'tiles> {
        let mut id = self.heads[(doubling * PER_DOUBLING + within) as usize];
        std::iter::from_fn(move || {
            let this = (id != NONE).then_some(id)?;
            id = tiles[this].bin_next;
            Some(this)
        })
    }

    /// All tiles of at least about `size` bytes: those of the request's bin and above.
    pub(crate) fn at_least<'all>(
        &'all self,
        tiles: &'all Tiles,
        size: u64,
    ) -> impl Iterator<Item = TileId> + 'all {
        let (first, within) = place(size);
        ones(self.doublings & (u64::MAX << first)).flat_map(move |doubling| {
            let from = if doubling == first { within } else { 0 };
            let bins = u64::from(self.within[doubling as usize] & (u32::MAX << from));
            ones(bins).flat_map(move |bin| self.walk(tiles, doubling, bin))
        })
    }
}
