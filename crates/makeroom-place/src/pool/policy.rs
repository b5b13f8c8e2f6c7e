//! The pool: memory that is there is handed out and taken back. What happens when there is none is in `room.rs`.
//!
//! Allocate and free touch a few cache lines and nothing else: a search in bins, a split or a merge, one entry in the
//! table of blocks. Neither calls the backing unless memory is missing or a block was used by other streams.

use makeroom_core::{Address, FastMap, StreamId};

use super::backing::{Backing, Mark, PAGE, Patience};
use super::bins::{Bins, GRAIN};
use super::filled::Filled;
use super::handles::Handles;
use super::lists::{Zone, owner_of, stream_of};
use super::pending::Pending;
use super::report::{Allocated, BlockId, Cause, Counters, FreeError, Freed, Shortage, Stats};
use super::streams::{EVERYBODY, StreamIndex, Streams};
use super::tiles::{NONE, State, Tile, TileId, Tiles};
use super::trim::RETIRED;

/// No device has a tenth of this. Sums of addresses and sizes cannot overflow below it.
const LARGEST_BLOCK: u64 = 1 << 42;

/// A program that holds more than ever before by this part grows.
const GROWTH: u64 = 1000;

/// How a pool is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The most that may be reserved; `None`: what the device gives.
    pub limit: Option<u64>,
}

/// How far a request may go where no memory lies free for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// To new memory, and pages that the GPU is done with. Nothing is waited for.
    New,
    /// To pages for which the GPU is waited for briefly, and new memory.
    Brief,
    /// Where new memory is refused it waits for streams.
    All,
}

/// A pool of device memory on one device.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) settings: Settings,
    pub(super) tiles: Tiles,
    /// Free and unmapped tiles, by list.
    pub(super) bins: Vec<Bins>,
    /// The streams that have free memory in a zone.
    pub(super) filled: [Filled; Zone::ALL.len()],
    /// The stream from which others' memory is looked through, where there are many.
    pub(super) next_other: StreamIndex,
    pub(super) handles: Handles,
    pub(super) streams: Streams,
    /// The tile of each block in use, by address.
    pub(super) blocks: FastMap<u64, TileId>,
    pub(super) pending: Pending,
    /// The tile that was searched for last.
    pub(super) cursor: TileId,
    /// The block that was freed last, as long as it rests (`resting.rs`).
    pub(super) resting: TileId,
    /// When so many streams are gone their places are looked through.
    pub(super) retired_at_most: usize,
    /// What moving handles has cost of late, since the program last held more than ever before.
    pub(super) effort: u64,
    pub(super) live: u64,
    pub(super) used: u64,
    pub(super) peak_live: u64,
    /// The most that was ever live, whoever began the peak anew; growth by less than [`GROWTH`] of it is not noticed.
    pub(super) highest_live: u64,
    /// The most that was used, since somebody asked for it.
    most_used: u64,
    pub(super) done: Counters,
}

impl Policy {
    /// A pool that holds nothing.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            tiles: Tiles::default(),
            // The unmapped tiles of both zones, and what is free for everybody.
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

    /// Changes the limit on reserved bytes. What is above it already stays until it is trimmed.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        self.settings.limit = limit;
    }

    /// Hands out memory for use on a stream, at a multiple of 512 bytes. A request for nothing is one for a byte.
    pub fn allocate(
        &mut self,
        backing: &mut impl Backing,
        size: u64,
        stream: StreamId,
    ) -> Result<Allocated, Box<Shortage>> {
        self.allocate_by(Means::All, backing, size, stream).inspect_err(|_| self.done.refusals += 1)
    }

    /// [`Policy::allocate`] by certain means. A request that finds nothing by less than all of them is not counted as
    /// refused: whoever made it has another way.
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
        let zone = Zone::of(rounded);
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

    /// [`Policy::allocate`] where memory lies free for the request: nothing moves, grows, is waited for or refused. Marks
    /// may be made all the same, on streams whose memory would do.
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
        let zone = Zone::of(rounded);
        if let Some(id) = self.reuse(rounded, zone, stream, size) {
            return Some(self.allocated(id));
        }
        let found = self
            .find(rounded, zone, stream)
            .or_else(|| self.lent(backing, rounded, zone, stream, Patience::DoNotWait))?;
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

    /// Takes memory back. It is usable at once by what is submitted to `stream` from now on.
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

    /// Takes memory back that the GPU is done with on every stream, as the caller knows: usable at once by all.
    pub fn free_idle(&mut self, address: Address) -> Result<Freed, FreeError> {
        self.end_rest();
        let id = self.blocks.remove(&address.0).ok_or_else(|| self.wrong_address(address))?;
        let requested = self.tiles[id].figure;
        self.pending.forget_uses(id);
        self.release(id, EVERYBODY);
        Ok(Freed { block: BlockId(id), requested })
    }

    /// The block that begins at an address and is in use, with what was asked for.
    pub fn block_at(&self, address: Address) -> Option<(BlockId, u64)> {
        let id = self.blocks.get(&address.0).copied().filter(|&id| id != self.resting)?;
        Some((BlockId(id), self.tiles[id].figure))
    }

    /// The block in use that an address lies in: where it begins, and what was asked for. An address inside of a block
    /// is searched for among all of them.
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

    /// The pool in figures.
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
            done: Counters { marks: self.streams.marks, waits: self.streams.waits, ..self.done },
        }
    }

    /// How many streams have a place: those in use, and those that are gone and still named by memory.
    pub fn streams(&self) -> usize {
        self.streams.count() as usize - 1
    }

    /// The most that blocks held at once, rounding included, since this was asked last.
    pub fn take_most_used(&mut self) -> u64 {
        std::mem::replace(&mut self.most_used, self.used)
    }

    /// Begins the peaks anew from what is there now.
    pub fn reset_peaks(&mut self) {
        self.peak_live = self.live;
        self.handles.peak = self.handles.reserved();
    }

    /// A stream's place; it gets lists with its first call.
    pub(super) fn stream(&mut self, id: StreamId) -> StreamIndex {
        self.streams.find(id).unwrap_or_else(|| {
            let index = self.streams.add(id);
            // A place that was another stream's has lists already, and nothing in them.
            let lists = Zone::ALL[1].free(index) as usize + 1;
            if self.bins.len() < lists {
                self.bins.resize_with(lists, Bins::default);
            }
            index
        })
    }

    /// Memory for a block that is free on its stream or for everybody.
    pub(super) fn find(&self, size: u64, zone: Zone, stream: StreamIndex) -> Option<TileId> {
        self.bins[zone.free(stream) as usize]
            .find(&self.tiles, size)
            .or_else(|| self.bins[zone.free(EVERYBODY) as usize].find(&self.tiles, size))
    }

    /// Makes a part of a free tile a block; the rest stays free.
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

    /// A block of this size was handed out.
    pub(super) fn count_in(&mut self, size: u64, requested: u64) {
        self.live += requested;
        self.used += size;
        self.peak_live = self.peak_live.max(self.live);
        self.most_used = self.most_used.max(self.used);
        if self.live - self.live / GROWTH > self.highest_live {
            self.highest_live = self.live;
            // A program that still grows has to move.
            self.effort = 0;
        }
        self.done.allocations += 1;
        self.effort = self.effort.saturating_sub(1);
    }

    /// Whether a block should lie at the end of a free tile: where that leaves more whole pages, which can move.
    fn is_better_high(&self, id: TileId, size: u64) -> bool {
        let tile = &self.tiles[id];
        if tile.size - size < PAGE {
            return false;
        }
        let pages = |from: u64, to: u64| (to / PAGE).saturating_sub(from.div_ceil(PAGE));
        pages(tile.address, tile.end() - size) > pages(tile.address + size, tile.end())
    }

    /// Makes a block free memory of a stream, one with its free neighbours.
    pub(super) fn release(&mut self, id: TileId, stream: StreamIndex) {
        self.count_out(id, stream);
        self.settle(id);
    }

    /// A block is free on a stream from now on, and hangs nowhere yet.
    fn count_out(&mut self, id: TileId, stream: StreamIndex) {
        let tile = &mut self.tiles[id];
        self.live -= tile.figure;
        self.used -= tile.size;
        tile.state = State::Free;
        tile.is_shared = false;
        tile.list = Zone::of_list(tile.list).free(stream);
        tile.figure = self.streams.last(stream).0;
    }

    /// Merges a free or unmapped tile that hangs nowhere with its neighbours of the same kind, and hangs it in.
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

    /// Hangs a tile in the list it belongs to.
    pub(super) fn hang(&mut self, id: TileId) {
        let list = self.tiles[id].list;
        let bins = &mut self.bins[list as usize];
        let was_empty = bins.is_empty();
        bins.insert(&mut self.tiles, id);
        if was_empty && let Some(stream) = owner_of(list) {
            self.filled[Zone::of_list(list) as usize].insert(stream);
        }
    }

    /// Takes a tile out of the list it belongs to.
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

    /// The mark after which a free tile's stream must have come.
    pub(super) fn freed_after(&self, id: TileId) -> (StreamIndex, Mark) {
        let tile = &self.tiles[id];
        (stream_of(tile.list), Mark(tile.figure))
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
