//! Blocks that several streams use: freed, they wait until the GPU has passed what all of these were given.

use makeroom_core::{Address, FastMap, StreamId};

use super::backing::{Backing, Mark, Patience};
use super::policy::Policy;
use super::report::FreeError;
use super::streams::StreamIndex;
use super::tiles::{State, TileId};

/// A freed block, and what it waits for.
#[derive(Clone, Debug)]
struct Waiting {
    tile: TileId,
    /// Whose it is when it has waited.
    stream: StreamIndex,
    /// Streams that must have passed a mark after this one.
    uses: Vec<(StreamIndex, Mark)>,
}

/// Which other streams use blocks, and what waits for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    uses: FastMap<TileId, Vec<StreamIndex>>,
    waiting: Vec<Waiting>,
    /// Σ of what was asked for.
    requested: u64,
}

impl Pending {
    /// How many blocks wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// What had been asked for, of all blocks that wait.
    pub(crate) fn requested(&self) -> u64 {
        self.requested
    }

    /// All places of streams that blocks in use or freed ones still name.
    pub(crate) fn streams(&self) -> impl Iterator<Item = StreamIndex> + '_ {
        let waiting = self.waiting.iter().flat_map(|waiting| {
            std::iter::once(waiting.stream).chain(waiting.uses.iter().map(|&(stream, _)| stream))
        });
        self.uses.values().flatten().copied().chain(waiting)
    }

    /// A block's other streams do not matter any more.
    pub(crate) fn forget_uses(&mut self, tile: TileId) {
        self.uses.remove(&tile);
    }
}

impl Policy {
    /// Another stream uses a block as well: after its free it waits until the GPU has passed what that stream was
    /// given before the free.
    pub fn record_stream(&mut self, address: Address, stream: StreamId) -> Result<(), FreeError> {
        self.end_rest();
        let id = *self.blocks.get(&address.0).ok_or_else(|| self.wrong_address(address))?;
        let stream = self.stream(stream);
        let uses = self.pending.uses.entry(id).or_default();
        if !uses.contains(&stream) {
            uses.push(stream);
        }
        self.tiles[id].is_shared = true;
        Ok(())
    }

    /// A freed block waits for the other streams that use it.
    pub(super) fn pend(&mut self, backing: &mut impl Backing, tile: TileId, stream: StreamIndex) {
        let mut uses = Vec::new();
        for other in self.pending.uses.remove(&tile).unwrap_or_default() {
            if other != stream {
                let after = self.streams.last(other);
                // Where it is refused, it is made when somebody asks: that waits for more, never for less.
                let _ = self.streams.mark(backing, other);
                uses.push((other, after));
            }
        }
        if uses.is_empty() {
            self.release(tile, stream);
            return;
        }
        self.pending.requested += self.tiles[tile].figure;
        self.tiles[tile].state = State::Pending;
        self.pending.waiting.push(Waiting { tile, stream, uses });
    }

    /// Takes blocks back that wait for streams, those of which the GPU has passed; how many bytes came back.
    pub fn collect(&mut self, backing: &mut impl Backing, patience: Patience) -> u64 {
        self.end_rest();
        let mut collected = 0;
        let mut still = Vec::new();
        for mut waiting in std::mem::take(&mut self.pending.waiting) {
            waiting
                .uses
                .retain(|&(stream, after)| self.streams.wait(backing, stream, after, patience).is_err());
            if waiting.uses.is_empty() {
                collected += self.tiles[waiting.tile].size;
                self.pending.requested -= self.tiles[waiting.tile].figure;
                self.release(waiting.tile, waiting.stream);
            } else {
                still.push(waiting);
            }
        }
        self.pending.waiting = still;
        collected
    }
}
