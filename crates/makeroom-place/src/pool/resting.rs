//! The small block that was freed last: it rests before it becomes free memory.
//!
//! Programs free a block and ask for one of the same size next. A small one that was freed last is therefore left as it
//! is, neither merged with its neighbours nor hung in a bin, and is handed out again to a request of its size and
//! stream. Any other call makes it free memory first, so nothing else ever sees it and no memory is kept from anybody.
//! Large blocks do not rest: where the best place for the next one is matters more than the time to find it.
//!
//! Invariant: a resting tile is free (state, list, mark) and counted so, hangs in no bin, and is still in the table of
//! blocks.

use super::lists::Zone;
use super::policy::Policy;
use super::streams::StreamIndex;
use super::tiles::{NONE, State, TileId};

impl Policy {
    /// Lets a block rest whose free has been counted.
    pub(super) fn rest(&mut self, id: TileId) {
        debug_assert_eq!(self.resting, NONE);
        self.resting = id;
    }

    /// Makes the block that rests free memory.
    #[inline]
    pub(super) fn end_rest(&mut self) {
        let id = std::mem::replace(&mut self.resting, NONE);
        if id != NONE {
            self.blocks.remove(&self.tiles[id].address);
            self.settle(id);
        }
    }

    /// Hands out the block that rests, if it is what is asked for; otherwise it becomes free memory.
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
