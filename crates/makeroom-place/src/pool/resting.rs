//! The most recently freed small block rests before it becomes free memory.
//!
//! Programs often free a block and then allocate one of the same size. So the most recently freed small block is left
//! as it is, neither merged with its neighbors nor inserted into a bin, and is returned to the next request if size and
//! stream match. Any other call first makes it free memory, so no other code ever sees it and it is never withheld from
//! a request. Large blocks do not rest: for them, the best place matters more than the time to find it.
//!
//! Invariant: a resting tile is free (state, list, fence) and counted as free, is in no bin, and is still in the table
//! of blocks.

use super::lists::Zone;
use super::policy::Policy;
use super::streams::StreamIndex;
use super::tiles::{NONE, State, TileId};

impl Policy {
    /// Lets a block rest after its free has been counted.
    pub(super) fn rest(&mut self, id: TileId) {
        debug_assert_eq!(self.resting, NONE);
        self.resting = id;
    }

    /// Turns the resting block into free memory.
    #[inline]
    pub(super) fn end_rest(&mut self) {
        let id = std::mem::replace(&mut self.resting, NONE);
        if id != NONE {
            self.blocks.remove(&self.tiles[id].address);
            self.settle(id);
        }
    }

    /// Returns the resting block if it matches the request; otherwise turns it into free memory.
    #[inline]
    pub(super) fn reuse(
        &mut self,
        size: u64,
        zone: Zone,
        stream: StreamIndex,
        requested: u64,
    ) -> Option<TileId> {
        let id = self.resting;
        if id == NONE || self.tiles[id].size != size || self.tiles[id].list != zone.free(stream) {
            self.end_rest();
            return None;
        }
        self.resting = NONE;
        let tile = &mut self.tiles[id];
        tile.state = State::Live;
        tile.figure = requested;
        self.count_in(size, requested);
        Some(id)
    }
}
