//! What happens when a request finds no memory in one piece: others' memory, pages that move, new handles.
//!
//! A *window* is where the block will lie: addresses without a block, some of them with memory behind already. The
//! memory that is missing there is taken from *donors*, handles that lie wholly in free memory elsewhere, and only
//! what these cannot give is new. Nothing changes before everything that can be refused has been granted: new
//! handles first, then donors one by one, then one mapping for each gap. What was made for a request that is refused
//! in the end goes back to the device at once.

use makeroom_core::Address;

use super::backing::{Backing, PAGE, Patience, Piece};
use super::donors::{Filling, Moving, choose, pieces};
use super::handles::HandleId;
use super::lists::Zone;
use super::policy::{Means, Policy};
use super::report::Cause;
use super::streams::{EVERYBODY, StreamIndex};
use super::tiles::{NONE, State, TileId};
use super::window::Gap;

/// How many addresses are reserved at once, where the backing has them.
const RANGE: u64 = 1 << 40;
/// Moving a handle is forgotten after so many allocations.
const EFFORT_OF_A_MOVE: u64 = 6400;
/// So many moves count for nothing: a program that has just stopped growing has to move.
const FREE_MOVES: u64 = 200;
/// With so many more a program gets a little, which saves most of them; beyond, it gets more with every move.
const PATIENCE: f64 = 2_500.0;
/// How many other streams' memory a request looks at. Real programs have far fewer streams.
const MOST_OTHERS: usize = 64;
/// No program gets more than this part beyond what it ever used.
const MOST_SLACK: f64 = 0.25;

impl Policy {
    /// A free tile that begins where the block is to begin and is large enough for it.
    pub(super) fn make_room(
        &mut self,
        means: Means,
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
        if let Some(found) = self.lent(backing, size, zone, stream, Patience::DoNotWait) {
            return Ok(found);
        }
        if self.adopt(backing, zone, stream, Patience::DoNotWait)
            && let Some(found) = self.find(size, zone, stream)
        {
            return Ok(found);
        }
        // No stream's work waits for memory for every stream, and few ask for it: what would be idle in a moment is worth that.
        if stream == EVERYBODY
            && zone == Zone::Large
            && means != Means::New
            && let Some(found) = self.lent_soon(backing, size, zone)
        {
            return Ok(found);
        }
        let (reserved, peak) = (self.handles.reserved(), self.handles.peak);
        // Small blocks take few pages and keep them: moving these once costs little, new ones would stay.
        if zone == Zone::Large
            && means != Means::New
            && self.allowance() > 0
            && let Ok(found) = self.assemble(backing, size, zone, stream, Moving::Sparing)
        {
            return Ok(found);
        }
        let mut cause = Cause::Device;
        // A page that cannot move now, because its stream is late or captured or a graph uses it, is no reason to fail.
        let with_less = [Moving::Allowed, Moving::Idle, Moving::Refused];
        for moving in with_less.into_iter().skip(usize::from(means == Means::New)) {
            match self.assemble(backing, size, zone, stream, moving) {
                Ok(found) => return Ok(found),
                Err(Cause::Device) => {}
                Err(other) => {
                    cause = other;
                    break;
                }
            }
        }
        self.give_up(backing, reserved, peak);
        if means != Means::All {
            return Err(cause);
        }
        self.wait_for_room(backing, size, zone, stream, cause)
            .inspect_err(|_| self.give_up(backing, reserved, peak))
    }

    /// The last resort: what waits for streams is waited for, as long as that may take.
    fn wait_for_room(
        &mut self,
        backing: &mut impl Backing,
        size: u64,
        zone: Zone,
        stream: StreamIndex,
        cause: Cause,
    ) -> Result<TileId, Cause> {
        let mut came = self.collect(backing, Patience::Wait) > 0;
        // One stream's memory is waited for before that of all of them, which takes as long as there is memory.
        if self.filled[zone as usize].len() > MOST_OTHERS
            && let Some(found) = self.lent(backing, size, zone, stream, Patience::Wait)
        {
            return Ok(found);
        }
        for zone in Zone::ALL {
            // Also where the block cannot lie: a handle shared by two streams' free memory can move only then.
            came |= self.adopt(backing, zone, stream, Patience::Wait);
        }
        if !came {
            return Err(cause);
        }
        match self.find(size, zone, stream) {
            Some(found) => Ok(found),
            None => self.assemble(backing, size, zone, stream, Moving::Needed),
        }
    }

    /// Gives handles back that were made for a request and not used for it.
    fn give_up(&mut self, backing: &mut impl Backing, reserved: u64, peak: u64) {
        for handle in std::mem::take(&mut self.handles.spare) {
            let piece = self.handles.get(handle).piece;
            if self.handles.reserved() >= reserved + piece.size && backing.release(piece).is_ok() {
                self.handles.remove(handle);
                self.done.released += 1;
            } else {
                self.handles.spare.push(handle);
            }
        }
        // Nobody ever had what was refused.
        self.handles.peak = peak.max(self.handles.reserved());
    }

    /// Another stream's free memory that is large enough and that the GPU is done with before the timeout. The rest of
    /// that memory stays with its stream: streams that took everything from each other would never come to rest.
    pub(super) fn lent(
        &mut self,
        backing: &mut impl Backing,
        size: u64,
        zone: Zone,
        stream: StreamIndex,
        timeout: Patience,
    ) -> Option<TileId> {
        self.others(zone, stream).into_iter().find_map(|other| {
            let found = self.bins[zone.free(other) as usize].find(&self.tiles, size)?;
            let (_, after) = self.freed_after(found);
            self.streams.wait(backing, other, after, timeout).is_ok().then_some(found)
        })
    }

    /// Other streams that have free memory in a zone: all of them, or, where there are many, some by turns. A program
    /// with thousands of streams would otherwise look at all of them for every request.
    pub(super) fn others(&mut self, zone: Zone, stream: StreamIndex) -> Vec<StreamIndex> {
        let filled = &self.filled[zone as usize];
        let first = EVERYBODY + 1;
        if filled.len() <= MOST_OTHERS {
            return filled.from(first).filter(|&other| other != stream).collect();
        }
        let others = filled.from(self.next_other.max(first)).chain(filled.from(first));
        let mut some: Vec<StreamIndex> = others.take(MOST_OTHERS).collect();
        self.next_other = some.last().map_or(first, |&last| last + 1);
        some.sort_unstable();
        some.dedup();
        some.retain(|&other| other != stream);
        some
    }

    /// The free memory of the first stream that has enough, waited for briefly.
    fn lent_soon(&mut self, backing: &mut impl Backing, size: u64, zone: Zone) -> Option<TileId> {
        let (stream, found) = self.others(zone, EVERYBODY).into_iter().find_map(|stream| {
            Some(stream).zip(self.bins[zone.free(stream) as usize].find(&self.tiles, size))
        })?;
        let (_, after) = self.freed_after(found);
        self.streams.wait(backing, stream, after, Patience::WaitBriefly).is_ok().then_some(found)
    }

    /// Makes other streams' free memory this stream's, as far as the GPU is done with it; whether anything came.
    pub(super) fn adopt(
        &mut self,
        backing: &mut impl Backing,
        zone: Zone,
        stream: StreamIndex,
        patience: Patience,
    ) -> bool {
        let mut others = if patience == Patience::Wait {
            self.filled[zone as usize].from(EVERYBODY + 1).filter(|&other| other != stream).collect()
        } else {
            self.others(zone, stream)
        };
        if stream != EVERYBODY {
            others.insert(0, EVERYBODY);
        }
        let mut adopted = false;
        for other in others {
            adopted |= self.adopt_from(backing, zone, other, stream, patience);
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
        if patience == Patience::DoNotWait && !self.may_be_idle(backing, from, owner) {
            return false;
        }
        let tiles: Vec<TileId> = self.bins[from as usize].at_least(&self.tiles, 0).collect();
        let mut adopted = false;
        for id in tiles {
            let (_, after) = self.freed_after(id);
            if self.streams.wait(backing, owner, after, patience).is_ok() {
                self.unhang(id);
                self.tiles[id].list = zone.free(heir);
                // The GPU is done with it on every stream, so there is no mark to come to.
                self.tiles[id].figure = 0;
                self.settle(id);
                adopted = true;
            }
        }
        self.bins[from as usize].measure(&self.tiles);
        adopted
    }

    /// Whether the GPU may be done with any of a list's tiles. Makes the marks that asking for each tile would make,
    /// but looks at none of them: most requests find that nothing has changed since the last one.
    fn may_be_idle(&mut self, backing: &mut impl Backing, list: u32, owner: StreamIndex) -> bool {
        let bins = &self.bins[list as usize];
        if bins.is_empty() {
            return false;
        }
        let (oldest, newest) = (bins.oldest(), bins.newest());
        if let Some(newest) = newest.filter(|_| !self.streams.has_passed(owner, oldest)) {
            self.streams.is_done(backing, owner, newest);
        }
        self.streams.is_done(backing, owner, oldest)
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
        let mut donors = self.donors(backing, &window, zone, stream, moving);
        let mut allowance = if moving == Moving::Sparing { self.allowance() } else { 0 };
        let plan: Vec<(Gap, Filling)> =
            window.gaps.iter().map(|gap| (*gap, choose(&mut donors, gap, &mut allowance))).collect();
        let new: u64 = plan.iter().map(|(_, filling)| filling.missing).sum();
        if self.settings.limit.is_some_and(|limit| self.handles.reserved().saturating_add(new) > limit) {
            return Err(Cause::Limit);
        }
        let mut filled: Vec<(Gap, Vec<HandleId>)> = Vec::new();
        for (gap, Filling { handles: donors, missing }) in plan {
            let mut handles: Vec<HandleId> = donors.iter().map(|donor| donor.handle).collect();
            for donor in donors {
                self.handles.note(donor.handle, donor.tile);
            }
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
            self.fill(backing, gap, &handles, zone.free(stream), moving.patience())?;
        }
        self.aim(window.tile);
        let mut id = self.tile_at(window.start);
        if self.tiles[id].address < window.start {
            self.unhang(id);
            let rest = self.tiles.split(id, window.start - self.tiles[id].address);
            self.hang(id);
            self.hang(rest);
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
        let slack = moves / 4_000_000.0 + ((moves - PATIENCE).max(0.0) / 4_500.0).powi(2);
        let slack = slack.min(MOST_SLACK);
        ((self.highest_live as f64 * (1.0 + slack)) as u64).saturating_sub(self.handles.reserved())
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
        // Sums of addresses are made everywhere.
        address.0.checked_add(length).ok_or(Cause::Device)?;
        let id = self.tiles.add_range(address.0, length, zone.unmapped());
        self.handles.add_range(address.0, length, id);
        self.hang(id);
        Ok(())
    }

    /// Takes handles from where they are and maps them into a gap, whose addresses become free memory.
    fn fill(
        &mut self,
        backing: &mut impl Backing,
        gap: Gap,
        handles: &[HandleId],
        list: u32,
        patience: Patience,
    ) -> Result<(), Cause> {
        for &handle in handles {
            if self.handles.get(handle).address != 0 {
                self.detach(backing, handle, patience)?;
                self.effort += EFFORT_OF_A_MOVE;
            }
        }
        let pieces: Vec<Piece> = handles.iter().map(|&handle| self.handles.get(handle).piece).collect();
        backing.map(Address(gap.start), &pieces).map_err(|_| Cause::Device)?;
        let mut mapped = handles.to_vec();
        mapped.sort_unstable();
        self.handles.spare.retain(|spare| mapped.binary_search(spare).is_err());
        self.done.mapped += handles.len() as u64;
        let mut at = gap.start;
        for &handle in handles {
            self.handles.map(handle, at);
            at += self.handles.get(handle).piece.size;
        }
        self.aim(gap.tile);
        self.convert(gap.start, at, State::Free, list);
        Ok(())
    }

    /// Unmaps a handle that is mapped, once the GPU is done with what was there; it becomes a spare one.
    pub(super) fn detach(
        &mut self,
        backing: &mut impl Backing,
        handle: HandleId,
        patience: Patience,
    ) -> Result<(), Cause> {
        let held = self.handles.get(handle);
        self.aim(held.near);
        let id = self.tile_at(held.address);
        let zone = Zone::of_list(self.tiles[id].list);
        let (stream, after) = self.freed_after(id);
        self.streams.wait(backing, stream, after, patience).map_err(|_| Cause::Device)?;
        backing.unmap(Address(held.address), held.piece).map_err(|_| Cause::Device)?;
        self.done.unmapped += 1;
        self.handles.unmap(handle);
        self.handles.spare.push(handle);
        self.convert(held.address, held.address + held.piece.size, State::Unmapped, zone.unmapped());
        Ok(())
    }

    /// Makes a part of a free tile unmapped, or a part of an unmapped one free.
    fn convert(&mut self, from: u64, to: u64, state: State, list: u32) {
        let mut id = self.tile_at(from);
        self.unhang(id);
        if self.tiles[id].address < from {
            let middle = self.tiles.split(id, from - self.tiles[id].address);
            self.hang(id);
            id = middle;
        }
        if self.tiles[id].end() > to {
            let rest = self.tiles.split(id, to - from);
            self.hang(rest);
        }
        let tile = &mut self.tiles[id];
        tile.state = state;
        tile.list = list;
        tile.figure = 0;
        self.settle(id);
    }

    /// Begins the next search at a tile, if it is still there.
    fn aim(&mut self, near: TileId) {
        if self.tiles.get(near).is_some_and(|tile| tile.state != State::Vacant) {
            self.cursor = near;
        }
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
}
