//! Makes room for a request that no free block can satisfy: from other streams' memory, by moving pages, or with new
//! handles.
//!
//! A *window* is where the block will be placed: addresses without a live block, some of them already mapped. The
//! missing memory comes from *donors*, which are handles entirely inside free memory elsewhere; only the remainder is
//! new. Calls that can fail come first: new handles are created, then donors are unmapped one by one, then each gap is
//! mapped with one call. If the request fails in the end, new handles created for it are released immediately.

use makeroom_core::Address;

use super::backing::{Backing, PAGE, Piece, Timeout};
use super::donors::{Filling, Moving, choose, pieces};
use super::handles::HandleId;
use super::lists::Zone;
use super::policy::{Means, Policy};
use super::report::Cause;
use super::streams::{EVERYBODY, StreamIndex};
use super::tiles::{NONE, State, TileId};
use super::window::Gap;

/// Number of addresses to reserve at once, if the backing has them.
const RANGE: u64 = 1 << 40;
/// The number of allocations that offset one move of a handle.
const EFFORT_OF_A_MOVE: u64 = 6400;
/// This many moves are free: a program that has just stopped growing has to move pages.
const FREE_MOVES: u64 = 200;
/// For this many further moves, the pool grants slight slack, which prevents most of them; beyond that, the slack grows
/// with every move.
const MOVES_WITH_LITTLE_SLACK: f64 = 2_500.0;
/// Number of other streams whose memory a request examines. Real programs have far fewer streams.
const MOST_OTHERS: usize = 64;
/// Maximum slack, as a fraction of the peak of live memory.
const MOST_SLACK: f64 = 0.25;

impl Policy {
    /// Returns a free tile that starts where the block will start and is large enough for it.
    pub(super) fn make_room(
        &mut self,
        means: Means,
        backing: &mut impl Backing,
        size: u64,
        zone: Zone,
        stream: StreamIndex,
    ) -> Result<TileId, Cause> {
        if self.collect(backing, Timeout::DoNotWait) > 0
            && let Some(found) = self.find(size, zone, stream)
        {
            return Ok(found);
        }
        if let Some(found) = self.borrowed(backing, size, zone, stream, Timeout::DoNotWait) {
            return Ok(found);
        }
        if self.steal(backing, zone, stream, Timeout::DoNotWait)
            && let Some(found) = self.find(size, zone, stream)
        {
            return Ok(found);
        }
        // Requests for every stream are rare, and no stream's work is delayed by them. A brief wait for memory that is
        // about to become idle is worth it.
        if stream == EVERYBODY
            && zone == Zone::Large
            && means != Means::New
            && let Some(found) = self.lent_soon(backing, size, zone)
        {
            return Ok(found);
        }
        let (reserved, peak) = (self.handles.reserved(), self.handles.peak);
        // Small blocks take few pages and keep them: moving pages once costs little, but new ones would stay forever.
        if zone == Zone::Large
            && means != Means::New
            && self.allowance() > 0
            && let Ok(found) = self.assemble(backing, size, zone, stream, Moving::Sparing)
        {
            return Ok(found);
        }
        let mut cause = Cause::Device;
        // A page that cannot move now (its stream is late or being captured, or a graph uses it) is no reason to fail.
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

    /// The last resort: waits for streams, up to the longest timeout.
    fn wait_for_room(
        &mut self,
        backing: &mut impl Backing,
        size: u64,
        zone: Zone,
        stream: StreamIndex,
        cause: Cause,
    ) -> Result<TileId, Cause> {
        let mut came = self.collect(backing, Timeout::Wait) > 0;
        // Waiting for one stream that has enough memory is tried before waiting for all of them, which takes much
        // longer.
        if self.filled[zone as usize].len() > MOST_OTHERS
            && let Some(found) = self.borrowed(backing, size, zone, stream, Timeout::Wait)
        {
            return Ok(found);
        }
        for zone in Zone::ALL {
            // Both zones, although the block goes into only one: a handle shared by the free memory of two streams can
            // move only after this.
            came |= self.steal(backing, zone, stream, Timeout::Wait);
        }
        if !came {
            return Err(cause);
        }
        match self.find(size, zone, stream) {
            Some(found) => Ok(found),
            None => self.assemble(backing, size, zone, stream, Moving::Needed),
        }
    }

    /// Releases handles that were created for a request but not used.
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
        // A failed request must not raise the peak.
        self.handles.peak = peak.max(self.handles.reserved());
    }

    /// Another stream's free memory that is large enough and that the GPU has finished using before the timeout. The
    /// remainder stays with that stream: if streams took everything from each other, they would never settle.
    pub(super) fn borrowed(
        &mut self,
        backing: &mut impl Backing,
        size: u64,
        zone: Zone,
        stream: StreamIndex,
        timeout: Timeout,
    ) -> Option<TileId> {
        self.others(zone, stream).into_iter().find_map(|other| {
            let found = self.bins[zone.free(other) as usize].find(&self.tiles, size)?;
            let (_, after) = self.freed_after(found);
            self.streams.wait(backing, other, after, timeout).is_ok().then_some(found)
        })
    }

    /// Other streams that have free memory in a zone: all of them, or, if there are many, the next few in turn.
    /// Otherwise, a program with thousands of streams would examine all of them for every request.
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

    /// The free memory of the first stream that has enough, after a brief wait.
    fn lent_soon(&mut self, backing: &mut impl Backing, size: u64, zone: Zone) -> Option<TileId> {
        let (stream, found) = self.others(zone, EVERYBODY).into_iter().find_map(|stream| {
            Some(stream).zip(self.bins[zone.free(stream) as usize].find(&self.tiles, size))
        })?;
        let (_, after) = self.freed_after(found);
        self.streams.wait(backing, stream, after, Timeout::WaitBriefly).is_ok().then_some(found)
    }

    /// Moves other streams' free memory to this stream if the GPU has finished using it; returns whether there was any.
    pub(super) fn steal(
        &mut self,
        backing: &mut impl Backing,
        zone: Zone,
        stream: StreamIndex,
        timeout: Timeout,
    ) -> bool {
        let mut others = if timeout == Timeout::Wait {
            self.filled[zone as usize].from(EVERYBODY + 1).filter(|&other| other != stream).collect()
        } else {
            self.others(zone, stream)
        };
        if stream != EVERYBODY {
            others.insert(0, EVERYBODY);
        }
        let mut stolen = false;
        for other in others {
            stolen |= self.steal_from(backing, zone, other, stream, timeout);
        }
        stolen
    }

    /// The same for the memory of one stream.
    pub(super) fn steal_from(
        &mut self,
        backing: &mut impl Backing,
        zone: Zone,
        owner: StreamIndex,
        heir: StreamIndex,
        timeout: Timeout,
    ) -> bool {
        let from = zone.free(owner);
        if timeout == Timeout::DoNotWait && !self.may_be_idle(backing, from, owner) {
            return false;
        }
        let tiles: Vec<TileId> = self.bins[from as usize].at_least(&self.tiles, 0).collect();
        let mut stolen = false;
        for id in tiles {
            let (_, after) = self.freed_after(id);
            if self.streams.wait(backing, owner, after, timeout).is_ok() {
                self.unhang(id);
                self.tiles[id].list = zone.free(heir);
                // The GPU has finished using it on every stream, so there is no fence to wait for.
                self.tiles[id].figure = 0;
                self.settle(id);
                stolen = true;
            }
        }
        self.bins[from as usize].measure(&self.tiles);
        stolen
    }

    /// Whether the GPU may have finished using any tile of a list. Creates the fences that checking each tile would
    /// create, but examines none of the tiles: for most requests, nothing has changed since the last one.
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

    /// Maps moved and new memory into a window, and splits the window's tile where the block starts.
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
            self.fill(backing, gap, &handles, zone.free(stream), moving.timeout())?;
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

    /// How much new memory may be created although handles could move instead: none, unless handles have moved
    /// repeatedly.
    ///
    /// A loop needs a place for each of its blocks, or pages move in every iteration. The more pages have moved, the
    /// more memory the pool may reserve beyond the program's peak, until moves are no longer necessary.
    fn allowance(&self) -> u64 {
        let moves = (self.effort / EFFORT_OF_A_MOVE).saturating_sub(FREE_MOVES) as f64;
        if moves == 0.0 {
            return 0;
        }
        let slack = moves / 4_000_000.0 + ((moves - MOVES_WITH_LITTLE_SLACK).max(0.0) / 4_500.0).powi(2);
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
        // Later code adds addresses and sizes without overflow checks.
        address.0.checked_add(length).ok_or(Cause::Device)?;
        let id = self.tiles.add_range(address.0, length, zone.unmapped());
        self.handles.add_range(address.0, length, id);
        self.hang(id);
        Ok(())
    }

    /// Detaches handles and maps them into a gap, whose addresses become free memory.
    fn fill(
        &mut self,
        backing: &mut impl Backing,
        gap: Gap,
        handles: &[HandleId],
        list: u32,
        timeout: Timeout,
    ) -> Result<(), Cause> {
        for &handle in handles {
            if self.handles.get(handle).address != 0 {
                self.detach(backing, handle, timeout)?;
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

    /// Unmaps a mapped handle once the GPU has finished using its memory; the handle becomes spare.
    pub(super) fn detach(
        &mut self,
        backing: &mut impl Backing,
        handle: HandleId,
        timeout: Timeout,
    ) -> Result<(), Cause> {
        let held = self.handles.get(handle);
        self.aim(held.near);
        let id = self.tile_at(held.address);
        let zone = Zone::of_list(self.tiles[id].list);
        let (stream, after) = self.freed_after(id);
        self.streams.wait(backing, stream, after, timeout).map_err(|_| Cause::Device)?;
        backing.unmap(Address(held.address), held.piece).map_err(|_| Cause::Device)?;
        self.done.unmapped += 1;
        self.handles.unmap(handle);
        self.handles.spare.push(handle);
        self.convert(held.address, held.address + held.piece.size, State::Unmapped, zone.unmapped());
        Ok(())
    }

    /// Turns part of a free tile into an unmapped one, or part of an unmapped tile into a free one.
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

    /// Starts the next search at a tile, if it still exists.
    fn aim(&mut self, near: TileId) {
        if self.tiles.get(near).is_some_and(|tile| tile.state != State::Vacant) {
            self.cursor = near;
        }
    }

    /// The tile that contains an address. The search starts at the last tile found, because pages that move together
    /// are close together.
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
