//! Blocks used by several streams. After the free, such a block waits until the GPU has finished the work submitted to
//! each of these streams before the free.

use std::collections::BTreeMap;

use makeroom_core::{Address, FastMap, StreamId};

use super::backing::{Backing, Fence, Timeout};
use super::policy::Policy;
use super::report::FreeError;
use super::streams::StreamIndex;
use super::tiles::{State, TileId};

/// Number of pending blocks that a request examines. Real programs have far fewer.
const MOST_WAITING: usize = 256;

/// A freed block, and the fences it waits for.
#[derive(Clone, Debug)]
struct Waiting {
    tile: TileId,
    /// The stream it becomes free on.
    stream: StreamIndex,
    /// Each of these streams must have passed a fence after this one.
    uses: Vec<(StreamIndex, Fence)>,
}

/// Which other streams use blocks, and the frees that wait for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    uses: FastMap<TileId, Vec<StreamIndex>>,
    /// In the order of their frees.
    waiting: BTreeMap<u64, Waiting>,
    /// Total number of frees that had to wait.
    freed: u64,
    /// Where the next scan of pending blocks starts, if there are too many to examine at once.
    next: u64,
    /// Σ of the requested sizes.
    requested: u64,
}

impl Pending {
    /// The number of pending blocks.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The sum of the requested sizes of all pending blocks.
    pub(crate) fn requested(&self) -> u64 {
        self.requested
    }

    /// The indices of all streams that live or pending blocks still refer to.
    pub(crate) fn streams(&self) -> impl Iterator<Item = StreamIndex> + '_ {
        let waiting = self.waiting.values().flat_map(|waiting| {
            std::iter::once(waiting.stream).chain(waiting.uses.iter().map(|&(stream, _)| stream))
        });
        self.uses.values().flatten().copied().chain(waiting)
    }

    /// Removes the record of the other streams that use a block.
    pub(crate) fn forget_uses(&mut self, tile: TileId) {
        self.uses.remove(&tile);
    }
}

impl Policy {
    /// Records that another stream uses a block too. After its free, the block waits until the GPU has finished the
    /// work submitted to that stream before the free.
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

    /// Makes a freed block wait for the other streams that use it.
    pub(super) fn pend(&mut self, backing: &mut impl Backing, tile: TileId, stream: StreamIndex) {
        let mut uses = Vec::new();
        for other in self.pending.uses.remove(&tile).unwrap_or_default() {
            if other != stream {
                let after = self.streams.last(other);
                // If this fails, the fence is created when it is first needed: later, which waits for more work, never
                // for less.
                let _ = self.streams.fence(backing, other);
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

    /// Frees the pending blocks whose streams have passed their fences; returns the number of bytes freed.
    pub fn collect(&mut self, backing: &mut impl Backing, timeout: Timeout) -> u64 {
        self.end_rest();
        let mut collected = 0;
        for free in self.frees_in_turn(timeout) {
            let Some(waiting) = self.pending.waiting.get_mut(&free) else { continue };
            waiting
                .uses
                .retain(|&(stream, after)| self.streams.wait(backing, stream, after, timeout).is_err());
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

    /// The frees to examine, in order: all of them if there are few or the caller is ready to wait, otherwise the next
    /// few in turn.
    fn frees_in_turn(&mut self, timeout: Timeout) -> Vec<u64> {
        let waiting = &self.pending.waiting;
        if timeout == Timeout::Wait || waiting.len() <= MOST_WAITING {
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
