//! Blocks that several streams use: freed, they wait until the GPU has passed what all of these were given.

use std::collections::BTreeMap;

use makeroom_core::{Address, FastMap, StreamId};

use super::backing::{Backing, Mark, Patience};
use super::policy::Policy;
use super::report::FreeError;
use super::streams::StreamIndex;
use super::tiles::{State, TileId};

/// How many blocks that wait for streams a request looks at. Real programs have far fewer.
const MOST_WAITING: usize = 256;

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
    /// In the order of their frees.
    waiting: BTreeMap<u64, Waiting>,
    /// How many were ever freed to wait.
    freed: u64,
    /// The free from which waiting blocks are looked through, where there are many.
    next: u64,
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
        let waiting = self.waiting.values().flat_map(|waiting| {
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
        self.pending.waiting.insert(self.pending.freed, Waiting { tile, stream, uses });
        self.pending.freed += 1;
    }

    /// Takes blocks back that wait for streams, those of which the GPU has passed; how many bytes came back.
    pub fn collect(&mut self, backing: &mut impl Backing, patience: Patience) -> u64 {
        self.end_rest();
        let mut collected = 0;
        for free in self.frees_in_turn(patience) {
            let Some(waiting) = self.pending.waiting.get_mut(&free) else { continue };
            waiting
                .uses
                .retain(|&(stream, after)| self.streams.wait(backing, stream, after, patience).is_err());
            if waiting.uses.is_empty() {
                let (tile, stream) = (waiting.tile, waiting.stream);
                self.pending.waiting.remove(&free);
                collected += self.tiles[tile].size;
                self.pending.requested -= self.tiles[tile].figure;
                self.release(tile, stream);
            }
        }
        collected
    }

    /// The frees to look at, in order: all of them, or, where there are many and none is waited for, some by turns.
    fn frees_in_turn(&mut self, patience: Patience) -> Vec<u64> {
        let waiting = &self.pending.waiting;
        if patience == Patience::Wait || waiting.len() <= MOST_WAITING {
            return waiting.keys().copied().collect();
        }
        let from = self.pending.next;
        let mut some: Vec<u64> = waiting
            .range(from..)
            .chain(waiting.range(..from))
            .map(|(&free, _)| free)
            .take(MOST_WAITING)
            .collect();
        self.pending.next = some.last().map_or(0, |last| last + 1);
        some.sort_unstable();
        some
    }
}
