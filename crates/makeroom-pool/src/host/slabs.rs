//! Pinned memory with size-class free lists, for drivers that cannot map memory of a host node.
//!
//! Such memory cannot be remapped to other addresses, so there is no policy to run. A block is reused for requests of
//! its own size class, eight per power of two: at once on its own stream, and elsewhere after the GPU has passed its
//! free. If memory runs out, unused blocks are released first.

use std::collections::BTreeMap;

use makeroom_core::{Address, Bytes, FastMap, StreamId};
use makeroom_cuda::{Context, Driver, PinnedKind, PinnedMemory};
use makeroom_place::pool::{Cause, Fence, FreeError, Shortage, Stats};

use crate::allocator::{Allocator, EVERY_STREAM};
use crate::error::{OutOfMemory, PoolError, Result, WrongAddress};
use crate::fences::Fences;
use crate::fork::Lock;
use crate::pool::LONGEST_WAIT;
use crate::site::Site;

/// The smallest block, and the granularity of all.
const GRAIN: u64 = 4096;

/// Pinned host memory, cached.
#[derive(Debug)]
pub(super) struct PinnedSlabs {
    driver: &'static Driver,
    core: Lock<Core>,
}

/// `reserved = Σ in_use.size + Σ free.size = live + rounding + cached`
#[derive(Debug)]
struct Core {
    driver: &'static Driver,
    context: Context,
    limit: Option<u64>,
    fences: Fences,
    in_use: FastMap<u64, InUse>,
    free: BTreeMap<u64, Vec<Free>>,
    stats: Stats,
}

#[derive(Debug)]
struct InUse {
    memory: PinnedMemory,
    requested: u64,
    streams: Vec<StreamId>,
}

/// A freed block, and the fences the GPU must pass before it can be used anywhere. A stream without a fence was being
/// captured: it is marked later.
#[derive(Debug)]
struct Free {
    memory: PinnedMemory,
    waits: Vec<(StreamId, Option<Fence>)>,
}

/// Size classes: eight steps per power of two.
fn size_class(bytes: u64) -> Option<u64> {
    let step = (bytes.max(GRAIN).checked_next_power_of_two()? / 16).max(GRAIN);
    bytes.max(1).checked_next_multiple_of(step)
}

impl PinnedSlabs {
    pub(super) fn new(driver: &'static Driver, device: i32, quota: Option<Bytes>) -> Result<Self> {
        let context = driver.device(device)?.retain_primary()?;
        let core = Core {
            driver,
            context,
            limit: quota.map(Bytes::get),
            fences: Fences::new(driver),
            in_use: FastMap::default(),
            free: BTreeMap::new(),
            stats: Stats::default(),
        };
        Ok(Self { driver, core: Lock::new(core) })
    }
}

impl Core {
    /// Whether a block can be used on a stream: it was freed there, or the GPU has passed all its fences.
    fn is_usable(&mut self, waits: &mut Vec<(StreamId, Option<Fence>)>, on: Option<StreamId>) -> bool {
        let Self { fences, context, .. } = self;
        waits.retain_mut(|(stream, fence)| {
            if fence.is_none() {
                *fence = fences.fence(context, *stream).ok();
            }
            !fence.is_some_and(|fence| fences.passed(context, *stream) >= fence)
        });
        waits.iter().all(|(stream, _)| Some(*stream) == on)
    }

    fn reuse(&mut self, size: u64, stream: StreamId) -> Option<PinnedMemory> {
        let mut blocks = self.free.remove(&size)?;
        let found = (0..blocks.len()).find(|&index| self.is_usable(&mut blocks[index].waits, Some(stream)));
        let block = found.map(|index| blocks.swap_remove(index));
        if !blocks.is_empty() {
            self.free.insert(size, blocks);
        }
        self.stats.cached -= block.as_ref().map_or(0, |_| size);
        block.map(|block| block.memory)
    }

    fn make(&mut self, size: u64, requested: u64) -> Result<PinnedMemory> {
        if self.limit.is_some_and(|limit| self.stats.reserved + size > limit) {
            self.release(self.limit.unwrap_or(0).saturating_sub(size));
        }
        let is_over = self.limit.is_some_and(|limit| self.stats.reserved.saturating_add(size) > limit);
        if is_over {
            return Err(self.shortage(requested, Cause::Limit, None));
        }
        let pin = |core: &Self| {
            let _entered = core.context.enter()?;
            PinnedMemory::allocate(core.driver, Bytes::new(size), PinnedKind::Mapped)
        };
        let made = match pin(self) {
            Err(error) if error.is_out_of_memory() && self.release(0) > 0 => pin(self),
            answer => answer,
        };
        let memory = made.map_err(|error| self.shortage(requested, Cause::Device, Some(error)))?;
        self.stats.reserved += size;
        self.stats.peak_reserved = self.stats.peak_reserved.max(self.stats.reserved);
        self.stats.done.created += 1;
        self.stats.handles += 1;
        Ok(memory)
    }

    /// Releases unused blocks until at most `keep` bytes are reserved. Blocks that the GPU may still use stay.
    fn release(&mut self, keep: u64) -> u64 {
        let before = self.stats.reserved;
        let sizes: Vec<u64> = self.free.keys().rev().copied().collect();
        for size in sizes {
            let mut kept = Vec::new();
            for mut block in self.free.remove(&size).unwrap_or_default() {
                if self.stats.reserved <= keep || !self.is_usable(&mut block.waits, None) {
                    kept.push(block);
                    continue;
                }
                self.stats.reserved -= size;
                self.stats.cached -= size;
                self.stats.handles -= 1;
                self.stats.done.released += 1;
            }
            if !kept.is_empty() {
                self.free.insert(size, kept);
            }
        }
        before - self.stats.reserved
    }

    fn shortage(&self, requested: u64, cause: Cause, driver: Option<makeroom_cuda::Error>) -> PoolError {
        let largest = self.free.keys().next_back().copied().unwrap_or(0);
        let pool = Shortage { requested, cause, largest, limit: self.limit, stats: self.stats };
        PoolError::OutOfMemory(Box::new(OutOfMemory { pool, device: None, driver, spilled: None }))
    }
}

impl Allocator for PinnedSlabs {
    fn allocate(&self, bytes: u64, stream: StreamId, _site: Site) -> Result<Address> {
        let core = &mut *self.core.lock()?;
        let size = size_class(bytes).ok_or_else(|| core.shortage(bytes, Cause::TooLarge, None))?;
        let memory = match core.reuse(size, stream) {
            Some(memory) => memory,
            None => core.make(size, bytes)?,
        };
        let address = Address(memory.as_ptr() as u64);
        core.in_use.insert(address.0, InUse { memory, requested: bytes, streams: vec![stream] });
        core.stats.live += bytes;
        core.stats.rounding += size - bytes;
        core.stats.peak_live = core.stats.peak_live.max(core.stats.live);
        core.stats.blocks += 1;
        core.stats.done.allocations += 1;
        Ok(address)
    }

    unsafe fn free(&self, address: Address, stream: StreamId, site: Site) -> Result<()> {
        let core = &mut *self.core.lock()?;
        let Some(mut block) = core.in_use.remove(&address.0) else {
            let reason = FreeError::NotInUse(address);
            return Err(PoolError::WrongAddress(Box::new(WrongAddress { reason, site, before: None })));
        };
        block.streams[0] = stream;
        let held = block.memory.len() as u64;
        core.stats.live -= block.requested;
        core.stats.rounding -= held - block.requested;
        core.stats.cached += held;
        core.stats.blocks -= 1;
        let Core { fences, context, .. } = core;
        let streams = block.streams.iter().filter(|stream| **stream != EVERY_STREAM);
        let waits = streams.map(|stream| (*stream, fences.fence(context, *stream).ok())).collect();
        let freed = Free { memory: block.memory, waits };
        core.free.entry(held).or_default().push(freed);
        Ok(())
    }

    fn record_stream(&self, address: Address, stream: StreamId) -> Result<()> {
        let core = &mut *self.core.lock()?;
        let Some(block) = core.in_use.get_mut(&address.0) else {
            let (reason, site) = (FreeError::NotInUse(address), Site::here());
            return Err(PoolError::WrongAddress(Box::new(WrongAddress { reason, site, before: None })));
        };
        if !block.streams.contains(&stream) {
            block.streams.push(stream);
        }
        Ok(())
    }

    fn retire_stream(&self, stream: StreamId) {
        let Ok(mut core) = self.core.lock() else { return };
        let Core { fences, context, free, .. } = &mut *core;
        for block in free.values_mut().flatten() {
            block.waits.retain_mut(|(on, fence)| {
                if *on != stream {
                    return true;
                }
                *fence = fence.or_else(|| fences.fence(context, stream).ok());
                // If the wait fails the block stays unusable, rather than being reused too early.
                fence.is_none_or(|fence| fences.wait(context, stream, fence, LONGEST_WAIT).is_err())
            });
        }
    }

    fn trim(&self, keep: u64) -> u64 {
        self.core.lock().map_or(0, |mut core| core.release(keep))
    }

    fn reaches(&self, address: Address) -> bool {
        let holds = |memory: &PinnedMemory| memory.as_ptr_range().contains(&(address.0 as *const u8));
        let Ok(core) = self.core.lock() else { return false };
        core.in_use.values().any(|block| holds(&block.memory))
            || core.free.values().flatten().any(|block| holds(&block.memory))
    }

    fn stats(&self) -> Stats {
        self.core.lock().map(|core| core.stats).unwrap_or_default()
    }

    fn driver(&self) -> &'static Driver {
        self.driver
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Copies may still be in flight, and freeing this memory does not always wait for them.
        if let Ok(_entered) = self.context.enter() {
            let _ = self.driver.synchronize();
        }
    }
}
