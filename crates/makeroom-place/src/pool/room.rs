//! What happens when a request finds no memory in one piece: others' memory, pages that move, new handles.
//!
//! A *window* is where the block will lie: addresses without a block, some of them with memory behind already. The
//! memory that is missing there is taken from *donors*, handles that lie wholly in free memory elsewhere, and only
//! what these cannot give is new. Nothing changes before everything that can be refused has been granted: new
//! handles first, then donors one by one, then one mapping for each gap.

use std::cmp::Reverse;

use makeroom_core::Address;

use super::backing::{Backing, PAGE, Piece};
use super::handles::HandleId;
use super::lists::Zone;
use super::policy::{Patience, Policy};
use super::report::Cause;
use super::streams::{EVERYBODY, StreamIndex};
use super::tiles::{NONE, State, TileId};
use super::window::{Gap, Window};

/// How many addresses are reserved at once, where the backing has them.
const RANGE: u64 = 1 << 40;
/// A handle is at most this part of the block it was made for: one that a later, smaller block shares cannot move,
/// and what is left of it is of little use.
const SHARE: u64 = 16;
/// Moving a handle is forgotten after so many allocations.
const EFFORT_OF_A_MOVE: u64 = 400;
/// So many moves count for nothing: a program that still grows has to move.
const FREE_MOVES: u64 = 200;
/// No handle is larger, except in blocks of which it would take more than [`MOST_PIECES`].
const LARGEST_HANDLE: u64 = 16 << 20;
const MOST_PIECES: u64 = 1024;
/// Small blocks take no handle from large ones that is larger: it would not come back.
const LARGEST_SMALL_HANDLE: u64 = 2 * PAGE;

/// Whether mapped handles may be asked to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moving {
    /// As far as the allowance for new memory does not reach.
    Sparing,
    Allowed,
    Refused,
}

/// A handle that can move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Donor {
    pub(super) handle: HandleId,
    pub(super) size: u64,
    /// Where it is; 0 where it is mapped nowhere.
    pub(super) address: u64,
    /// The size of the free memory in which it lies.
    pub(super) hole: u64,
}

impl Policy {
    /// A free tile that begins where the block is to begin and is large enough for it.
    pub(super) fn make_room(
        &mut self,
        backing: &mut impl Backing,
        size: u64,
        zone: Zone,
        stream: StreamIndex,
    ) -> Result<TileId, Cause> {
        if self.collect(backing, Patience::DoNotWait) > 0
            && let Some(found) = self.find(size, zone, stream)
        {
            return Ok(found);
        }
        let patience = if zone == Zone::Large { Patience::Wait } else { Patience::DoNotWait };
        if self.adopt(backing, zone, stream, patience)
            && let Some(found) = self.find(size, zone, stream)
        {
            return Ok(found);
        }
        if self.allowance() > 0
            && let Ok(found) = self.assemble(backing, size, zone, stream, Moving::Sparing)
        {
            return Ok(found);
        }
        let cause = match self.assemble(backing, size, zone, stream, Moving::Allowed) {
            Ok(found) => return Ok(found),
            // A page that could not move, because its stream is captured or a graph uses it, is no reason to fail.
            Err(Cause::Device) => match self.assemble(backing, size, zone, stream, Moving::Refused) {
                Ok(found) => return Ok(found),
                Err(cause) => cause,
            },
            Err(cause) => cause,
        };
        // The last resort: what waits for streams is waited for, whatever it takes.
        let mut came = self.collect(backing, Patience::Wait) > 0;
        for zone in Zone::ALL {
            // Also where the block cannot lie: a handle shared by two streams' free memory can move only then.
            came |= self.adopt(backing, zone, stream, Patience::Wait);
        }
        if !came {
            return Err(cause);
        }
        match self.find(size, zone, stream) {
            Some(found) => Ok(found),
            None => self.assemble(backing, size, zone, stream, Moving::Allowed),
        }
    }

    /// Makes other streams' free memory this stream's, as far as the GPU is done with it; whether anything came.
    pub(super) fn adopt(
        &mut self,
        backing: &mut impl Backing,
        zone: Zone,
        stream: StreamIndex,
        patience: Patience,
    ) -> bool {
        let mut adopted = false;
        for other in EVERYBODY..self.streams.count() {
            adopted |= other != stream && self.adopt_from(backing, zone, other, stream, patience);
        }
        adopted
    }

    /// The same for the memory of one stream.
    pub(super) fn adopt_from(
        &mut self,
        backing: &mut impl Backing,
        zone: Zone,
        owner: StreamIndex,
        heir: StreamIndex,
        patience: Patience,
    ) -> bool {
        let from = zone.free(owner);
        let tiles: Vec<TileId> = self.bins[from as usize].at_least(&self.tiles, 0).collect();
        let mut adopted = false;
        for id in tiles {
            let (_, after) = self.freed_after(id);
            let is_done = match patience {
                Patience::Wait => self.streams.wait(backing, owner, after).is_ok(),
                Patience::DoNotWait => self.streams.is_done(backing, owner, after),
            };
            if is_done {
                self.bins[from as usize].remove(&mut self.tiles, id);
                self.tiles[id].list = zone.free(heir);
                // The GPU is done with it on every stream, so there is no mark to come to.
                self.tiles[id].figure = 0;
                self.settle(id);
                adopted = true;
            }
        }
        adopted
    }

    /// Puts memory behind a window, moved and new, and cuts the window's tile to begin where the block does.
    fn assemble(
        &mut self,
        backing: &mut impl Backing,
        size: u64,
        zone: Zone,
        stream: StreamIndex,
        moving: Moving,
    ) -> Result<TileId, Cause> {
        let mut window = self.best_window(size, zone, stream);
        if window.is_none() {
            self.reserve(backing, size, zone)?;
            window = self.best_window(size, zone, stream);
        }
        let window = window.ok_or(Cause::TooLarge)?;
        let mut donors = self.donors(&window, zone, moving);
        let mut allowance = if moving == Moving::Sparing { self.allowance() } else { 0 };
        let plan: Vec<(Gap, Filling)> =
            window.gaps.iter().map(|gap| (*gap, choose(&mut donors, gap, &mut allowance))).collect();
        let new: u64 = plan.iter().map(|(_, filling)| filling.missing).sum();
        if self.settings.limit.is_some_and(|limit| self.handles.reserved().saturating_add(new) > limit) {
            return Err(Cause::Limit);
        }
        let mut filled: Vec<(Gap, Vec<HandleId>)> = Vec::new();
        for (gap, Filling { mut handles, missing }) in plan {
            for piece in pieces(missing, size) {
                let handle = backing.create(piece).map_err(|_| Cause::Device)?;
                let id = self.handles.add(Piece { handle, size: piece });
                self.handles.spare.push(id);
                self.done.created += 1;
                handles.push(id);
            }
            filled.push((gap, handles));
        }
        for (gap, handles) in filled {
            self.fill(backing, gap, &handles, zone.free(stream))?;
        }
        let mut id = self.tile_at(window.start);
        if self.tiles[id].address < window.start {
            let list = self.tiles[id].list as usize;
            self.bins[list].remove(&mut self.tiles, id);
            let rest = self.tiles.split(id, window.start - self.tiles[id].address);
            self.bins[list].insert(&mut self.tiles, id);
            self.bins[list].insert(&mut self.tiles, rest);
            id = rest;
        }
        debug_assert!(self.tiles[id].state == State::Free && self.tiles[id].size >= size);
        Ok(id)
    }

    /// How much may be taken new although handles could move instead: nothing, unless they have moved again and again.
    ///
    /// A program that repeats itself needs a place for everything at once, or pages move in every round. The more
    /// they have moved, the more room is given beyond what the program ever used, until they need not.
    fn allowance(&self) -> u64 {
        let moves = (self.effort / EFFORT_OF_A_MOVE).saturating_sub(FREE_MOVES) as f64;
        if moves == 0.0 {
            return 0;
        }
        let slack = moves / 40_000.0 + (moves / 4_500.0).powi(2);
        ((self.peak_live as f64 * (1.0 + slack)) as u64).saturating_sub(self.handles.reserved())
    }

    fn reserve(&mut self, backing: &mut impl Backing, size: u64, zone: Zone) -> Result<(), Cause> {
        let least = size.checked_next_multiple_of(PAGE).ok_or(Cause::TooLarge)?;
        let mut length = RANGE.max(least);
        let address = loop {
            match backing.reserve(length) {
                Ok(address) => break address,
                Err(_) if length / 2 >= least => length = (length / 2).next_multiple_of(PAGE),
                Err(_) => return Err(Cause::Device),
            }
        };
        let id = self.tiles.add_range(address.0, length, zone.unmapped());
        self.handles.add_range(address.0, length, zone, id);
        self.bins[zone.unmapped() as usize].insert(&mut self.tiles, id);
        Ok(())
    }

    /// Takes handles from where they are and maps them into a gap, whose addresses become free memory.
    fn fill(
        &mut self,
        backing: &mut impl Backing,
        gap: Gap,
        handles: &[HandleId],
        list: u32,
    ) -> Result<(), Cause> {
        for &handle in handles {
            self.detach(backing, handle)?;
        }
        let pieces: Vec<Piece> = handles.iter().map(|&handle| self.handles.get(handle).piece).collect();
        backing.map(Address(gap.start), &pieces).map_err(|_| Cause::Device)?;
        self.handles.spare.retain(|spare| !handles.contains(spare));
        self.done.mapped += handles.len() as u64;
        let mut at = gap.start;
        for &handle in handles {
            self.handles.map(handle, at);
            at += self.handles.get(handle).piece.size;
        }
        self.convert(gap.start, at, State::Free, list);
        Ok(())
    }

    /// Unmaps a handle once the GPU is done with what was there; it becomes a spare one.
    pub(super) fn detach(&mut self, backing: &mut impl Backing, handle: HandleId) -> Result<(), Cause> {
        let held = self.handles.get(handle);
        if held.address == 0 {
            return Ok(());
        }
        let id = self.tile_at(held.address);
        let zone = Zone::of_list(self.tiles[id].list);
        let (stream, after) = self.freed_after(id);
        self.streams.wait(backing, stream, after).map_err(|_| Cause::Device)?;
        backing.unmap(Address(held.address), held.piece).map_err(|_| Cause::Device)?;
        self.done.unmapped += 1;
        self.effort += EFFORT_OF_A_MOVE;
        self.handles.unmap(handle);
        self.handles.spare.push(handle);
        self.convert(held.address, held.address + held.piece.size, State::Unmapped, zone.unmapped());
        Ok(())
    }

    /// Makes a part of a free tile unmapped, or a part of an unmapped one free.
    fn convert(&mut self, from: u64, to: u64, state: State, list: u32) {
        let mut id = self.tile_at(from);
        let old = self.tiles[id].list as usize;
        self.bins[old].remove(&mut self.tiles, id);
        if self.tiles[id].address < from {
            let middle = self.tiles.split(id, from - self.tiles[id].address);
            self.bins[old].insert(&mut self.tiles, id);
            id = middle;
        }
        if self.tiles[id].end() > to {
            let rest = self.tiles.split(id, to - from);
            self.bins[old].insert(&mut self.tiles, rest);
        }
        let tile = &mut self.tiles[id];
        tile.state = state;
        tile.list = list;
        tile.figure = 0;
        self.settle(id);
    }

    /// The tile in which an address lies. It is searched for from the tile that was found last: what moves together
    /// lies together.
    pub(super) fn tile_at(&mut self, address: u64) -> TileId {
        let Some(range) = self.handles.range_of(address) else { return NONE };
        let mut id = range.first;
        if let Some(last) = self.tiles.get(self.cursor)
            && last.state != State::Vacant
            && range.contains(last.address)
        {
            id = self.cursor;
        }
        while self.tiles[id].address > address {
            id = self.tiles[id].previous;
        }
        while self.tiles[id].end() <= address {
            id = self.tiles[id].next;
        }
        self.cursor = id;
        id
    }

    /// All handles that can move and are not part of the window, large ones first; those that are mapped nowhere always.
    fn donors(&self, window: &Window, for_zone: Zone, moving: Moving) -> Vec<Donor> {
        let mut donors: Vec<Donor> = Vec::new();
        for &handle in &self.handles.spare {
            donors.push(Donor { handle, size: self.handles.get(handle).piece.size, address: 0, hole: 0 });
        }
        let streams = if moving == Moving::Refused { EVERYBODY } else { self.streams.count() };
        for stream in EVERYBODY..streams {
            for zone in Zone::ALL {
                for id in self.bins[zone.free(stream) as usize].at_least(&self.tiles, PAGE) {
                    let tile = &self.tiles[id];
                    for handle in self.handles.within(tile.address, tile.end()) {
                        let held = self.handles.get(handle);
                        if !window.touches(held.address, held.address + held.piece.size) {
                            donors.push(Donor {
                                handle,
                                size: held.piece.size,
                                address: held.address,
                                hole: tile.size,
                            });
                        }
                    }
                }
            }
        }
        if for_zone == Zone::Small {
            donors.retain(|donor| donor.size <= LARGEST_SMALL_HANDLE);
        }
        // Few large ones cost less than many small ones, and a small hole is worth less than a part of a large one.
        donors.sort_unstable_by_key(|donor| (Reverse(donor.size), donor.hole, donor.address));
        donors
    }
}

/// What comes into a gap.
struct Filling {
    /// Handles that move there.
    handles: Vec<HandleId>,
    /// What they leave for new ones.
    missing: u64,
}

/// Takes donors for a gap: the largest that are not larger than what is missing, and in the end the smallest of all,
/// whose rest stays free.
fn choose(donors: &mut Vec<Donor>, gap: &Gap, allowance: &mut u64) -> Filling {
    let mut handles = Vec::new();
    let new = (gap.needed.min(*allowance)) / PAGE * PAGE;
    *allowance -= new;
    let mut missing = gap.needed - new;
    let mut room = gap.room - new;
    while missing > 0 {
        let place = match donors.iter().position(|donor| donor.size <= missing) {
            Some(place) => place,
            None if donors.last().is_some_and(|donor| donor.size <= room) => donors.len() - 1,
            None => break,
        };
        let donor = donors.remove(place);
        handles.push(donor.handle);
        missing = missing.saturating_sub(donor.size);
        room -= donor.size;
    }
    missing += new;
    Filling { handles, missing }
}

/// The sizes of new handles for so many bytes of a block: powers of two, up to a sixteenth of the block.
fn pieces(mut bytes: u64, block: u64) -> Vec<u64> {
    let most = (block / SHARE).clamp(PAGE, LARGEST_HANDLE).max(block / MOST_PIECES);
    let mut piece = 1 << most.ilog2();
    let mut pieces = Vec::new();
    while bytes > 0 {
        while piece > bytes {
            piece /= 2;
        }
        pieces.push(piece);
        bytes -= piece;
    }
    pieces
}
