//! Free tiles by size: 32 bins for each power of two, with bitmaps of the nonempty bins.
//!
//! A search takes two bit scans and a short walk. It returns the smallest tile that fits from the request's own bin, or
//! else the smallest of the next nonempty bin. This is best fit, up to the limited length of the walk.
//!
//! A program can have thousands of streams with two lists each, so the bins of a power of two are allocated when they
//! get their first tile, and then kept.

use super::backing::Fence;
use super::tiles::{NONE, Tile, TileId, Tiles};

/// Granularity of blocks: sizes and addresses are multiples of it.
pub(crate) const GRAIN: u64 = 512;
/// Base-2 logarithm of the number of bins for each power of two.
const SPLIT: u32 = 5;
const PER_DOUBLING: u32 = 1 << SPLIT;
/// Number of powers of two from one grain up to the whole address space.
const DOUBLINGS: u32 = 48;
/// Number of tiles examined in a bin. Bins are narrow, so examining more gains little.
const WALK: u32 = 8;

/// The free tiles of one list.
#[derive(Clone, Debug)]
pub(crate) struct Bins {
    /// Indexed by power of two, up to the highest one that ever held a tile.
    by_doubling: Vec<Option<Box<Doubling>>>,
    /// Bitmap of the powers of two that hold a tile.
    doublings: u64,
    /// Lower bound of the fences after which the tiles were freed: the smallest `figure` inserted since
    /// [`Bins::measure`].
    oldest: u64,
    /// The largest `figure` inserted since then, and the number of tiles that have it.
    newest: (u64, usize),
}

/// The bins of one power of two.
#[derive(Clone, Debug)]
struct Doubling {
    heads: [TileId; PER_DOUBLING as usize],
    /// Bitmap of the nonempty bins.
    filled: u32,
}

impl Default for Bins {
    fn default() -> Self {
        Self { by_doubling: Vec::new(), doublings: 0, oldest: u64::MAX, newest: (0, 0) }
    }
}

/// The power of two of a size, and the bin within it: each size below 32 grains has its own bin.
fn place(size: u64) -> (u32, u32) {
    let grains = (size / GRAIN).max(1);
    let highest = grains.ilog2();
    if highest < SPLIT {
        return (0, grains as u32);
    }
    let within = (grains >> (highest - SPLIT)) as u32 & (PER_DOUBLING - 1);
    ((highest - SPLIT + 1).min(DOUBLINGS - 1), within)
}

/// The positions of the set bits in a bitmap, lowest first.
fn ones(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let place = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(place)
    })
}

impl Bins {
    /// Whether there are no tiles.
    pub(crate) fn is_empty(&self) -> bool {
        self.doublings == 0
    }

    /// Inserts a tile.
    pub(crate) fn insert(&mut self, tiles: &mut Tiles, id: TileId) {
        let Tile { size, figure, .. } = tiles[id];
        let (doubling, within) = place(size);
        let bins = self.doubling_mut(doubling);
        let first = std::mem::replace(&mut bins.heads[within as usize], id);
        bins.filled |= 1 << within;
        let tile = &mut tiles[id];
        tile.bin_previous = NONE;
        tile.bin_next = first;
        if first != NONE {
            tiles[first].bin_previous = id;
        }
        self.doublings |= 1 << doubling;
        self.oldest = self.oldest.min(figure);
        if figure > self.newest.0 {
            self.newest = (figure, 0);
        }
        self.newest.1 += usize::from(figure == self.newest.0);
    }

    /// Removes a tile that was inserted with its current size.
    pub(crate) fn remove(&mut self, tiles: &mut Tiles, id: TileId) {
        let Tile { size, figure, bin_previous, bin_next, .. } = tiles[id];
        self.newest.1 -= usize::from(figure == self.newest.0);
        if bin_next != NONE {
            tiles[bin_next].bin_previous = bin_previous;
        }
        if bin_previous != NONE {
            tiles[bin_previous].bin_next = bin_next;
            return;
        }
        let (doubling, within) = place(size);
        let bins = self.doubling_mut(doubling);
        bins.heads[within as usize] = bin_next;
        if bin_next == NONE {
            bins.filled &= !(1 << within);
            if bins.filled == 0 {
                self.doublings &= !(1 << doubling);
            }
        }
    }

    /// A lower bound of the fences after which the tiles were freed.
    pub(super) fn oldest(&self) -> Fence {
        Fence(self.oldest)
    }

    /// The latest fence after which a tile was freed, unless that tile has been removed.
    pub(super) fn newest(&self) -> Option<Fence> {
        (self.newest.1 > 0).then_some(Fence(self.newest.0))
    }

    /// Recomputes the earliest and latest fences from the tiles.
    pub(super) fn measure(&mut self, tiles: &Tiles) {
        let figures = || self.at_least(tiles, 0).map(|id| tiles[id].figure);
        let (oldest, newest) = (figures().min().unwrap_or(u64::MAX), figures().max().unwrap_or(0));
        let count = figures().filter(|&figure| figure == newest).count();
        (self.oldest, self.newest) = (oldest, (newest, count));
    }

    fn doubling_mut(&mut self, doubling: u32) -> &mut Doubling {
        let place = doubling as usize;
        if self.by_doubling.len() <= place {
            self.by_doubling.resize_with(place + 1, || None);
        }
        self.by_doubling[place]
            .get_or_insert_with(|| Box::new(Doubling { heads: [NONE; PER_DOUBLING as usize], filled: 0 }))
    }

    fn doubling(&self, doubling: u32) -> Option<&Doubling> {
        self.by_doubling.get(doubling as usize)?.as_deref()
    }

    /// Bitmap of the nonempty bins of a power of two.
    fn filled(&self, doubling: u32) -> u32 {
        self.doubling(doubling).map_or(0, |bins| bins.filled)
    }

    fn head(&self, doubling: u32, within: u32) -> TileId {
        self.doubling(doubling).map_or(NONE, |bins| bins.heads[within as usize])
    }

    /// The smallest tile of at least `size` bytes; among equals, the lowest.
    pub(crate) fn find(&self, tiles: &Tiles, size: u64) -> Option<TileId> {
        let (doubling, within) = place(size);
        let bits = self.filled(doubling) & (u32::MAX << within);
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
        self.smallest(tiles, doubling, self.filled(doubling).trailing_zeros(), size)
    }

    fn smallest(&self, tiles: &Tiles, doubling: u32, within: u32, size: u64) -> Option<TileId> {
        let mut id = self.head(doubling, within);
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

    /// The size of the largest tile; 0 if there are none.
    pub(crate) fn largest(&self, tiles: &Tiles) -> u64 {
        if self.doublings == 0 {
            return 0;
        }
        let doubling = self.doublings.ilog2();
        let within = self.filled(doubling).ilog2();
        self.walk(tiles, doubling, within).map(|id| tiles[id].size).max().unwrap_or(0)
    }

    fn walk<'tiles>(
        &self,
        tiles: &'tiles Tiles,
        doubling: u32,
        within: u32,
    ) -> impl Iterator<Item = TileId> + use<'tiles> {
        let mut id = self.head(doubling, within);
        std::iter::from_fn(move || {
            let this = (id != NONE).then_some(id)?;
            id = tiles[this].bin_next;
            Some(this)
        })
    }

    /// All tiles of at least approximately `size` bytes: those in the request's bin and above.
    pub(crate) fn at_least<'all>(
        &'all self,
        tiles: &'all Tiles,
        size: u64,
    ) -> impl Iterator<Item = TileId> + 'all {
        let (first, within) = place(size);
        ones(self.doublings & (u64::MAX << first)).flat_map(move |doubling| {
            let from = if doubling == first { within } else { 0 };
            let bins = u64::from(self.filled(doubling) & (u32::MAX << from));
            ones(bins).flat_map(move |bin| self.walk(tiles, doubling, bin))
        })
    }

    /// All tiles, from the largest bin to the smallest.
    pub(crate) fn largest_first<'all>(&'all self, tiles: &'all Tiles) -> impl Iterator<Item = TileId> + 'all {
        let descending = |bits: u64| (0..u64::BITS).rev().filter(move |&bit| bits >> bit & 1 != 0);
        descending(self.doublings).flat_map(move |doubling| {
            let bins = u64::from(self.filled(doubling));
            descending(bins).flat_map(move |bin| self.walk(tiles, doubling, bin))
        })
    }
}
