//! Stream order: which stream may reuse freed memory, and when.
//!
//! The stream that freed memory may reuse it immediately. Another stream may when the free is complete, when it has
//! waited for an event after the free, or, if the GPU is full, by being made to wait for the stream that freed it.
//! Each of these three can be turned off per pool.

use std::mem;

use super::{Block, BlockKind, ContextId, GRAIN, Machine, PoolId, StreamId};
use crate::status::{Result, Status};

/// Memory whose free is not complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    address: u64,
    bytes: u64,
    /// The stream that freed it, and its position; `None` if it was freed for all streams.
    freed_by: Option<(StreamId, u64)>,
    /// When the free is complete.
    at: u64,
}

impl Machine {
    /// `cuMemAllocFromPoolAsync`. Zero bytes give a null address.
    pub fn allocate_ordered(
        &mut self,
        context: ContextId,
        pool: PoolId,
        bytes: u64,
        stream: StreamId,
    ) -> Result<u64> {
        let device = self.pool_ref(pool)?.device;
        if bytes == 0 {
            return Ok(0);
        }
        let size = bytes.checked_next_multiple_of(GRAIN).ok_or(Status::OUT_OF_MEMORY)?;
        let address = match self.reuse(pool, size, stream)? {
            Some(address) => address,
            None => self.grow_or_wait(pool, size, stream)?,
        };
        self.enqueue(stream, 0)?;
        self.pool_mut(pool)?.used.add(bytes);
        self.blocks.insert(address, Block { bytes, context, device, kind: BlockKind::Ordered(pool) });
        Ok(address)
    }

    fn reuse(&mut self, pool: PoolId, size: u64, stream: StreamId) -> Result<Option<u64>> {
        let found = self.pools.get_mut(&pool).ok_or(Status::INVALID_VALUE)?;
        if let Some(address) = found.holes.take(size) {
            return Ok(Some(address));
        }
        if found.pending.is_empty() {
            return Ok(None);
        }
        let seen = &self.streams.get(&stream).ok_or(Status::INVALID_HANDLE)?.seen;
        let follow = found.reuse.follow_events;
        let usable = |pending: &Pending| {
            pending.freed_by.is_some_and(|(by, position)| {
                by == stream || (follow && seen.get(&by).is_some_and(|seen| *seen >= position))
            })
        };
        Ok(take_pending(&mut found.pending, size, usable).map(|(address, _)| address))
    }

    /// Grows the pool. If the GPU is full, releases unused memory of other pools, then waits for another stream.
    fn grow_or_wait(&mut self, pool: PoolId, size: u64, stream: StreamId) -> Result<u64> {
        if self.grow_pool(pool, size).is_ok() {
            return self.pool_mut(pool)?.holes.take(size).ok_or(Status::UNKNOWN);
        }
        let found = self.pool_mut(pool)?;
        let device = found.device;
        if found.reuse.internal_dependencies
            && let Some((address, pending)) = take_pending(&mut found.pending, size, |_| true)
        {
            let waiting = self.stream_mut(stream)?;
            waiting.busy_until = waiting.busy_until.max(pending.at);
            if let Some((by, position)) = pending.freed_by {
                let known = waiting.seen.entry(by).or_default();
                *known = position.max(*known);
            }
            return Ok(address);
        }
        let on_device: Vec<_> =
            self.pools.iter().filter(|(_, other)| other.device == device).map(|(other, _)| *other).collect();
        for other in on_device {
            self.shrink_pool(other, 0)?;
        }
        self.grow_pool(pool, size)?;
        self.pool_mut(pool)?.holes.take(size).ok_or(Status::UNKNOWN)
    }

    /// `cuMemFreeAsync`: stream-ordered memory returns to its pool, linear memory to the GPU, both when the stream
    /// reaches the free.
    pub fn free_on_stream(&mut self, address: u64, stream: StreamId) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let block = *self.blocks.get(&address).ok_or(Status::INVALID_VALUE)?;
        if self.is_imported_ordered(address) {
            return self.close_import(address);
        }
        match block.kind {
            BlockKind::Ordered(pool) => {
                self.enqueue(stream, 0)?;
                self.blocks.remove(&address);
                self.free_ordered(pool, address, block.bytes, Some(stream))
            }
            BlockKind::Linear => {
                self.enqueue(stream, 0)?;
                let at = self.stream_ref(stream)?.busy_until;
                self.free_linear_at(address, block, at);
                Ok(())
            }
            BlockKind::Graph => {
                self.blocks.remove(&address);
                self.retire_graph_ranges();
                Ok(())
            }
            BlockKind::Array | BlockKind::Code | BlockKind::Imported(_) => Err(Status::INVALID_VALUE),
        }
    }

    /// Returns a block that was removed from the list to its pool.
    pub(super) fn free_ordered(
        &mut self,
        pool: PoolId,
        address: u64,
        bytes: u64,
        stream: Option<StreamId>,
    ) -> Result<()> {
        let (at, freed_by) = if let Some(stream) = stream {
            let found = self.stream_ref(stream)?;
            (found.busy_until, Some((stream, found.position)))
        } else {
            let device = self.pool_mut(pool)?.device;
            (self.device_busy_until(device), None)
        };
        let now = self.now;
        let found = self.pool_mut(pool)?;
        found.used.current -= bytes;
        let size = bytes.next_multiple_of(GRAIN);
        if at <= now && found.reuse.opportunistic {
            found.holes.insert(address, size);
        } else {
            found.pending.push(Pending { address, bytes: size, freed_by, at });
        }
        if self.pool_ref(pool).is_err() {
            self.shrink_pool(pool, 0)?;
            self.bury_pool(pool);
        }
        Ok(())
    }

    /// Makes freed memory available to all streams when it is due. A call that synchronized also shrinks pools to
    /// their thresholds.
    pub(super) fn settle_pools(&mut self, waited: bool) {
        let now = self.now;
        let mut full = Vec::new();
        for (id, pool) in &mut self.pools {
            if !pool.pending.is_empty() && (pool.reuse.opportunistic || waited) {
                let (due, later) =
                    mem::take(&mut pool.pending).into_iter().partition(|pending| pending.at <= now);
                pool.pending = later;
                let due: Vec<Pending> = due;
                for pending in due {
                    pool.holes.insert(pending.address, pending.bytes);
                }
            }
            if waited && pool.reserved.current > pool.threshold {
                full.push((*id, pool.threshold));
            }
        }
        for (pool, threshold) in full {
            // The pool exists, so shrinking cannot fail.
            let _ = self.shrink_pool(pool, threshold);
            self.bury_pool(pool);
        }
    }

    /// Bytes of a pool whose frees are not complete.
    pub fn pending_bytes(&self, pool: PoolId) -> Result<u64> {
        Ok(self.pool_ref(pool)?.pending.iter().map(|pending| pending.bytes).sum())
    }
}

/// Takes `size` from the smallest usable piece; the rest of it stays pending.
fn take_pending(
    pending: &mut Vec<Pending>,
    size: u64,
    usable: impl Fn(&Pending) -> bool,
) -> Option<(u64, Pending)> {
    let fits = pending.iter().enumerate().filter(|(_, pending)| pending.bytes >= size && usable(pending));
    let (position, _) = fits.min_by_key(|(_, pending)| pending.bytes)?;
    let piece = pending[position];
    if piece.bytes > size {
        pending[position].address += size;
        pending[position].bytes -= size;
    } else {
        pending.swap_remove(position);
    }
    Some((piece.address, piece))
}
