//! Allocates from memory that the pool already has, and frees. `room.rs` handles requests for which no free block fits.
//!
//! Allocate and free touch only a few cache lines: a search in bins, a split or a merge, and one entry in the table of
//! blocks. Neither calls the backing unless no free block fits or other streams used the block.

use makeroom_core::{Address, FastMap, StreamId};

use super::backing::{Backing, Fence, PAGE, Timeout};
use super::bins::{Bins, GRAIN};
use super::filled::Filled;
use super::handles::Handles;
use super::lists::{Zone, owner_of, stream_of};
use super::pending::Pending;
use super::report::{Allocated, BlockId, Cause, Counters, FreeError, Freed, Shortage, Stats};
use super::streams::{EVERYBODY, StreamIndex, Streams};
use super::tiles::{NONE, State, Tile, TileId, Tiles};
use super::trim::RETIRED;

/// More than ten times the memory of any device. Below it, sums of addresses and sizes cannot overflow.
const LARGEST_BLOCK: u64 = 1 << 42;

/// A program is growing if its live memory exceeds the previous peak by more than this fraction (one in `GROWTH`).
const GROWTH: u64 = 1000;

/// The settings of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Limit on reserved bytes; `None` means the device's capacity.
    pub limit: Option<u64>,
}

/// What a request may use if no free block fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// New memory, and pages that the GPU has finished using. Does not wait.
    New,
    /// Also pages that require a brief wait for the GPU.
    Brief,
    /// Also waits for streams if creating new memory fails.
    All,
}

/// A memory pool on one device.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) settings: Settings,
    pub(super) tiles: Tiles,
    /// Free and unmapped tiles, by list.
    pub(super) bins: Vec<Bins>,
    /// The streams that have free memory, by zone.
    pub(super) filled: [Filled; Zone::ALL.len()],
    /// Where the next scan of other streams' memory starts, if there are many streams.
    pub(super) next_other: StreamIndex,
    pub(super) handles: Handles,
    pub(super) streams: Streams,
    /// The tile of each live block, by address.
    pub(super) blocks: FastMap<u64, TileId>,
    pub(super) pending: Pending,
    /// The tile found by the last search.
    pub(super) cursor: TileId,
    /// The most recently freed block, while it rests (`resting.rs`).
    pub(super) resting: TileId,
    /// When this many streams are retired, their slots are reclaimed.
    pub(super) retired_at_most: usize,
    /// The recent cost of moving handles, since the program's live memory last reached a new peak.
    pub(super) effort: u64,
    pub(super) live: u64,
    pub(super) used: u64,
    pub(super) peak_live: u64,
    /// Highest live memory ever, regardless of resets of the peak; growth by less than [`GROWTH`] is ignored.
    pub(super) highest_live: u64,
    /// Peak of used memory since the last query.
    most_used: u64,
    pub(super) done: Counters,
}

impl Policy {
    /// Creates an empty pool.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            tiles: Tiles::default(),
            // The unmapped tiles of both zones, and the memory free for every stream.
            bins: vec![Bins::default(); 4],
            filled: [Filled::default(), Filled::default()],
            next_other: EVERYBODY + 1,
            handles: Handles::default(),
            streams: Streams::default(),
            blocks: FastMap::default(),
            pending: Pending::default(),
            cursor: NONE,
            resting: NONE,
            retired_at_most: RETIRED,
            effort: 0,
            live: 0,
            used: 0,
            peak_live: 0,
            highest_live: 0,
            most_used: 0,
            done: Counters::default(),
        }
    }

    /// Changes the limit on reserved bytes. Memory above the new limit stays until the pool is trimmed.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        self.settings.limit = limit;
    }

    /// Allocates memory for use on a stream, at a multiple of 512 bytes. A request for 0 bytes counts as 1 byte.
    pub fn allocate_block(
        &mut self,
        backing: &mut impl Backing,
        size: u64,
        stream: StreamId,
    ) -> Result<Allocated, Box<Shortage>> {
        self.allocate_by(Means::All, backing, size, stream).inspect_err(|_| self.done.refusals += 1)
    }

    /// [`Policy::allocate_block`] with restricted means. With less than [`Means::All`], a failure is not counted, because the
    /// caller has a fallback.
    pub fn allocate_by(
        &mut self,
        means: Means,
        backing: &mut impl Backing,
        size: u64,
        stream: StreamId,
    ) -> Result<Allocated, Box<Shortage>> {
        let stream = self.stream(stream);
        if size > LARGEST_BLOCK {
            return Err(self.shortage(size, stream, Cause::TooLarge));
        }
        let rounded = size.max(1).next_multiple_of(GRAIN);
        let zone = Zone::for_size(rounded);
        if let Some(id) = self.reuse(rounded, zone, stream, size) {
            return Ok(self.allocated(id));
        }
        let found = match self.find(rounded, zone, stream) {
            Some(id) => id,
            None => self
                .make_room(means, backing, rounded, zone, stream)
                .map_err(|cause| self.shortage(size, stream, cause))?,
        };
        Ok(self.hand_out(found, rounded, zone, stream, size))
    }

    /// [`Policy::allocate_block`] from existing free memory only: nothing moves, grows, waits or counts as a failure. It may
    /// create fences on streams whose memory would fit.
    pub fn allocate_at_once(
        &mut self,
        backing: &mut impl Backing,
        size: u64,
        stream: StreamId,
    ) -> Option<Allocated> {
        if size > LARGEST_BLOCK {
            return None;
        }
        let stream = self.stream(stream);
        let rounded = size.max(1).next_multiple_of(GRAIN);
        let zone = Zone::for_size(rounded);
        if let Some(id) = self.reuse(rounded, zone, stream, size) {
            return Some(self.allocated(id));
        }
        let found = self
            .find(rounded, zone, stream)
            .or_else(|| self.borrowed(backing, rounded, zone, stream, Timeout::DoNotWait))?;
        Some(self.hand_out(found, rounded, zone, stream, size))
    }

    fn hand_out(
        &mut self,
        found: TileId,
        rounded: u64,
        zone: Zone,
        stream: StreamIndex,
        requested: u64,
    ) -> Allocated {
        let id = self.take(found, rounded, zone.free(stream), requested);
        self.allocated(id)
    }

    fn allocated(&self, id: TileId) -> Allocated {
        let tile = &self.tiles[id];
        Allocated { address: Address(tile.address), block: BlockId(id), size: tile.size }
    }

    /// Frees memory. Work submitted to `stream` from now on can use it immediately.
    pub fn free(
        &mut self,
        backing: &mut impl Backing,
        address: Address,
        stream: StreamId,
    ) -> Result<Freed, FreeError> {
        self.end_rest();
        let id = *self.blocks.get(&address.0).ok_or_else(|| self.wrong_address(address))?;
        let stream = self.stream(stream);
        let requested = self.tiles[id].figure;
        if Zone::of_list(self.tiles[id].list) == Zone::Small && !self.tiles[id].is_shared {
            self.count_out(id, stream);
            self.rest(id);
            return Ok(Freed { block: BlockId(id), requested });
        }
        self.blocks.remove(&address.0);
        if self.tiles[id].is_shared {
            self.pend(backing, id, stream);
        } else {
            self.release(id, stream);
        }
        Ok(Freed { block: BlockId(id), requested })
    }

    /// Frees memory that the GPU has finished using on every stream, as the caller guarantees. Every stream can use it
    /// immediately.
    pub fn free_idle(&mut self, address: Address) -> Result<Freed, FreeError> {
        self.end_rest();
        let id = self.blocks.remove(&address.0).ok_or_else(|| self.wrong_address(address))?;
        let requested = self.tiles[id].figure;
        self.pending.forget_uses(id);
        self.release(id, EVERYBODY);
        Ok(Freed { block: BlockId(id), requested })
    }

    /// The live block that starts at an address, and its requested size.
    pub fn block_at(&self, address: Address) -> Option<(BlockId, u64)> {
        let id = self.blocks.get(&address.0).copied().filter(|&id| id != self.resting)?;
        Some((BlockId(id), self.tiles[id].figure))
    }

    /// The live block that contains an address: its start and requested size. For an address inside a block, this
    /// searches all of them.
    pub fn block_around(&self, address: Address) -> Option<(Address, u64)> {
        if let Some((_, requested)) = self.block_at(address) {
            return Some((address, requested));
        }
        let tiles = self.blocks.values().filter(|&&id| id != self.resting).map(|&id| &self.tiles[id]);
        let around = |tile: &&Tile| address.0 >= tile.address && address.0 - tile.address < tile.figure;
        tiles
            .filter(|tile| tile.state == State::Live)
            .find(around)
            .map(|tile| (Address(tile.address), tile.figure))
    }

    /// The pool's statistics.
    pub fn stats(&self) -> Stats {
        let reserved = self.handles.reserved();
        Stats {
            live: self.live,
            pending: self.pending.requested(),
            rounding: self.used - self.live,
            reserved,
            cached: reserved - self.used,
            peak_live: self.peak_live,
            peak_reserved: self.handles.peak,
            blocks: (self.blocks.len() - usize::from(self.resting != NONE) + self.pending.len()) as u64,
            handles: self.handles.count(),
            done: Counters { fences: self.streams.fences, waits: self.streams.waits, ..self.done },
        }
    }

    /// The number of streams in the table: those in use, and retired ones that memory still refers to.
    pub fn streams(&self) -> usize {
        self.streams.count() as usize - 1
    }

    /// The peak of memory in blocks, including rounding, since the last call.
    pub fn take_most_used(&mut self) -> u64 {
        std::mem::replace(&mut self.most_used, self.used)
    }

    /// Resets the peaks to the current values.
    pub fn reset_peaks(&mut self) {
        self.peak_live = self.live;
        self.handles.peak = self.handles.reserved();
    }

    /// The index of a stream, which gets its lists on first use.
    pub(super) fn stream(&mut self, id: StreamId) -> StreamIndex {
        self.streams.find(id).unwrap_or_else(|| {
            let index = self.streams.add(id);
            // A reused slot already has lists, and they are empty.
            let lists = Zone::ALL[1].free(index) as usize + 1;
            if self.bins.len() < lists {
                self.bins.resize_with(lists, Bins::default);
            }
            index
        })
    }

    /// A free tile for a block, from its stream or from the memory free for every stream.
    pub(super) fn find(&self, size: u64, zone: Zone, stream: StreamIndex) -> Option<TileId> {
        self.bins[zone.free(stream) as usize]
            .find(&self.tiles, size)
            .or_else(|| self.bins[zone.free(EVERYBODY) as usize].find(&self.tiles, size))
    }

    /// Turns part of a free tile into a block; the rest stays free.
    fn take(&mut self, mut id: TileId, size: u64, list: u32, requested: u64) -> TileId {
        self.unhang(id);
        if self.is_better_high(id, size) {
            let front = id;
            id = self.tiles.split(front, self.tiles[front].size - size);
            self.hang(front);
        }
        if self.tiles[id].size > size {
            let rest = self.tiles.split(id, size);
            self.hang(rest);
        }
        let tile = &mut self.tiles[id];
        tile.state = State::Live;
        tile.list = list;
        tile.figure = requested;
        self.blocks.insert(tile.address, id);
        self.count_in(size, requested);
        id
    }

    /// Updates the counters for a new block.
    pub(super) fn count_in(&mut self, size: u64, requested: u64) {
        self.live += requested;
        self.used += size;
        self.peak_live = self.peak_live.max(self.live);
        self.most_used = self.most_used.max(self.used);
        if self.live - self.live / GROWTH > self.highest_live {
            self.highest_live = self.live;
            // A program that is still growing cannot avoid moves.
            self.effort = 0;
        }
        self.done.allocations += 1;
        self.effort = self.effort.saturating_sub(1);
    }

    /// Whether to place a block at the end of a free tile: if that leaves more whole pages, which can move.
    fn is_better_high(&self, id: TileId, size: u64) -> bool {
        let tile = &self.tiles[id];
        if tile.size - size < PAGE {
            return false;
        }
        let pages = |from: u64, to: u64| (to / PAGE).saturating_sub(from.div_ceil(PAGE));
        pages(tile.address, tile.end() - size) > pages(tile.address + size, tile.end())
    }

    /// Frees a block on a stream and merges it with free neighbors.
    pub(super) fn release(&mut self, id: TileId, stream: StreamIndex) {
        self.count_out(id, stream);
        self.settle(id);
    }

    /// Marks a block as free on a stream, and updates the counters. It is not in a list yet.
    fn count_out(&mut self, id: TileId, stream: StreamIndex) {
        let tile = &mut self.tiles[id];
        self.live -= tile.figure;
        self.used -= tile.size;
        tile.state = State::Free;
        tile.is_shared = false;
        tile.list = Zone::of_list(tile.list).free(stream);
        tile.figure = self.streams.last(stream).0;
    }

    /// Merges a free or unmapped tile that is in no list with its neighbors of the same kind, and inserts it into its
    /// list.
    pub(super) fn settle(&mut self, mut id: TileId) -> TileId {
        let next = self.tiles[id].next;
        if self.tiles.is_like(id, next) {
            self.unhang(next);
            self.tiles[id].figure = self.tiles[id].figure.max(self.tiles[next].figure);
            self.absorb_next(id);
        }
        let previous = self.tiles[id].previous;
        if self.tiles.is_like(id, previous) {
            self.unhang(previous);
            self.tiles[previous].figure = self.tiles[id].figure.max(self.tiles[previous].figure);
            self.absorb_next(previous);
            id = previous;
        }
        self.hang(id);
        id
    }

    fn absorb_next(&mut self, id: TileId) {
        if self.cursor == self.tiles[id].next {
            self.cursor = id;
        }
        self.tiles.absorb_next(id);
    }

    /// Inserts a tile into its list.
    pub(super) fn hang(&mut self, id: TileId) {
        let list = self.tiles[id].list;
        let bins = &mut self.bins[list as usize];
        let was_empty = bins.is_empty();
        bins.insert(&mut self.tiles, id);
        if was_empty && let Some(stream) = owner_of(list) {
            self.filled[Zone::of_list(list) as usize].insert(stream);
        }
    }

    /// Removes a tile from its list.
    pub(super) fn unhang(&mut self, id: TileId) {
        let list = self.tiles[id].list;
        let bins = &mut self.bins[list as usize];
        bins.remove(&mut self.tiles, id);
        if bins.is_empty()
            && let Some(stream) = owner_of(list)
        {
            self.filled[Zone::of_list(list) as usize].remove(stream);
        }
    }

    /// The stream of a free tile, and the last fence before its free: the GPU has finished using the tile once it has
    /// passed a later fence.
    pub(super) fn freed_after(&self, id: TileId) -> (StreamIndex, Fence) {
        let tile = &self.tiles[id];
        (stream_of(tile.list), Fence(tile.figure))
    }

    pub(super) fn wrong_address(&self, address: Address) -> FreeError {
        if self.handles.is_own(address.0) {
            FreeError::NotInUse(address)
        } else {
            FreeError::Foreign(address)
        }
    }

    fn shortage(&self, requested: u64, stream: StreamIndex, cause: Cause) -> Box<Shortage> {
        let lists = Zone::ALL.map(|zone| [zone.free(stream), zone.free(EVERYBODY)]);
        let largest = lists.as_flattened().iter().map(|&list| self.bins[list as usize].largest(&self.tiles));
        Box::new(Shortage {
            requested,
            cause,
            largest: largest.max().unwrap_or(0),
            limit: self.settings.limit,
            stats: self.stats(),
        })
    }
}
