//! Detects double frees, foreign pointers and use-after-free writes, and names both sites.
//!
//! A freed block is filled with a pattern and quarantined for a while; when it leaves, the pattern must be intact. A
//! double free of it is always caught, because the address is not handed out again in the meantime. A read after the
//! free is not detected; it just sees the pattern.
//!
//! This costs fills, waits and copies, so it is meant for debug builds: [`Checked::in_debug_builds`] does nothing in
//! others. Quarantined memory counts as live upstream. A block that cannot be filled (its stream is being captured,
//! its thread has no context) is freed at once, unchecked.

use std::fmt;

use makeroom_core::{Address, Bytes, StreamId};
use makeroom_cuda::{Region, Stream};
use makeroom_place::pool::FreeError;

use super::pass_on;
use super::quarantine::{Quarantine, QuarantinedBlock, Violation, WrittenAfterFree};
use crate::allocator::{Allocator, EVERY_STREAM};
use crate::blocks::Blocks;
use crate::error::{PoolError, Result, WrongAddress};
use crate::fork::Lock;
use crate::site::Site;

/// Fill pattern of freed memory.
const PATTERN: u8 = 0xdb;
/// Bytes per comparison.
const PIECE: u64 = 1 << 20;

type Hear = Box<dyn Fn(&Violation) + Send + Sync>;

/// An allocator that detects memory errors.
pub struct Checked<A: Allocator> {
    upstream: A,
    hear: Hear,
    most: Option<u64>,
    blocks: Blocks<InUse>,
    quarantine: Lock<Quarantine>,
}

struct InUse {
    bytes: u64,
    allocated: Site,
    /// Other streams that use it.
    streams: Vec<StreamId>,
}

impl<A: Allocator> Checked<A> {
    /// Quarantines up to `quarantine` bytes of freed memory. Violations are passed to `hear`, which is called without
    /// a lock.
    pub fn new(upstream: A, quarantine: Bytes, hear: impl Fn(&Violation) + Send + Sync + 'static) -> Self {
        let (hear, most) = (Box::new(hear), Some(quarantine.get()));
        Self { upstream, hear, most, blocks: Blocks::new(), quarantine: Lock::new(Quarantine::default()) }
    }

    /// The same in debug builds; in others nothing is checked.
    pub fn in_debug_builds(
        upstream: A,
        quarantine: Bytes,
        hear: impl Fn(&Violation) + Send + Sync + 'static,
    ) -> Self {
        let mut layer = Self::new(upstream, quarantine, hear);
        if !cfg!(debug_assertions) {
            layer.most = None;
        }
        layer
    }

    /// The upstream allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// Checks everything in quarantine and frees it.
    pub fn check_all(&self) {
        self.let_go(|quarantine| quarantine.take(0, |_| true));
    }

    fn let_go(&self, choose: impl FnOnce(&mut Quarantine) -> Vec<QuarantinedBlock>) -> usize {
        let Ok(taken) = self.quarantine.lock().map(|mut quarantine| choose(&mut quarantine)) else {
            return 0;
        };
        for held in &taken {
            // If the driver fails, other calls report that.
            if let Ok(Some(offset)) = self.first_change(held) {
                let QuarantinedBlock { address, bytes, allocated, freed, .. } = *held;
                let (bytes, offset) = (Bytes::new(bytes), Bytes::new(offset));
                let written = WrittenAfterFree { address, bytes, offset, allocated, freed };
                (self.hear)(&Violation::WrittenAfterFree(written));
            }
            // SAFETY: guaranteed by the caller of the free, and the block was in quarantine since.
            let _ = unsafe { self.upstream.free(held.address, held.stream, held.freed) };
        }
        taken.len()
    }

    fn region(&self, held: &QuarantinedBlock) -> Region<'_> {
        // SAFETY: this layer owns the memory while it is in quarantine, and no host slice refers to it.
        unsafe { Region::from_address(self.upstream.driver(), held.address, Bytes::new(held.bytes)) }
    }

    fn wait_for(&self, stream: StreamId) -> makeroom_cuda::Result<()> {
        if stream == EVERY_STREAM {
            return self.upstream.driver().synchronize();
        }
        // SAFETY: a stream on which memory was freed is alive until it is retired, which empties the quarantine.
        unsafe { Stream::borrow(self.upstream.driver(), stream.0) }.synchronize()
    }

    /// Fills a block after all other streams have finished with it. `false` if that is not possible now.
    fn fill(&self, held: &QuarantinedBlock, users: &[StreamId]) -> makeroom_cuda::Result<bool> {
        if held.stream == EVERY_STREAM {
            self.region(held).fill(PATTERN)?;
            return Ok(true);
        }
        // SAFETY: as above.
        let stream = unsafe { Stream::borrow(self.upstream.driver(), held.stream.0) };
        if stream.is_capturing()? {
            return Ok(false);
        }
        users.iter().try_for_each(|user| self.wait_for(*user))?;
        self.region(held).fill_on(PATTERN, &stream)?;
        Ok(true)
    }

    /// Offset of the first changed byte.
    fn first_change(&self, held: &QuarantinedBlock) -> makeroom_cuda::Result<Option<u64>> {
        self.wait_for(held.stream)?;
        let mut piece = vec![0; held.bytes.min(PIECE) as usize];
        let mut start = 0;
        while start < held.bytes {
            let length = (held.bytes - start).min(PIECE);
            let piece = &mut piece[..length as usize];
            self.region(held).part(Bytes::new(start), Bytes::new(length))?.read(piece)?;
            if let Some(at) = piece.iter().position(|byte| *byte != PATTERN) {
                return Ok(Some(start + at as u64));
            }
            start += length;
        }
        Ok(None)
    }

    #[cold]
    fn wrong_free(&self, address: Address, site: Site) -> PoolError {
        let before = self.quarantine.lock().ok().and_then(|quarantine| quarantine.sites(address));
        let is_ours = before.is_some() || self.upstream.reaches(address);
        let reason = if is_ours { FreeError::NotInUse(address) } else { FreeError::Foreign(address) };
        let wrong = || WrongAddress { reason, site, before };
        (self.hear)(&Violation::WrongFree(wrong()));
        PoolError::WrongAddress(Box::new(wrong()))
    }
}

impl<A: Allocator> fmt::Debug for Checked<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Checked").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

impl<A: Allocator> Allocator for Checked<A> {
    fn allocate(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address> {
        let address = match self.upstream.allocate(bytes, stream, site) {
            Err(error) if error.is_out_of_memory() => {
                if self.let_go(|quarantine| quarantine.take(0, |_| true)) == 0 {
                    return Err(error);
                }
                self.upstream.allocate(bytes, stream, site)?
            }
            answer => answer?,
        };
        if self.most.is_some() {
            self.blocks.insert(address, InUse { bytes, allocated: site, streams: Vec::new() })?;
        }
        Ok(address)
    }

    unsafe fn free(&self, address: Address, stream: StreamId, site: Site) -> Result<()> {
        let Some(most) = self.most else {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.upstream.free(address, stream, site) };
        };
        let Some(block) = self.blocks.remove(address)? else { return Err(self.wrong_free(address, site)) };
        let held =
            QuarantinedBlock { address, bytes: block.bytes, stream, allocated: block.allocated, freed: site };
        if held.bytes > most || !self.fill(&held, &block.streams).unwrap_or(false) {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.upstream.free(address, stream, site) };
        }
        self.let_go(|quarantine| {
            quarantine.push(held);
            quarantine.take(most, |_| false)
        });
        Ok(())
    }

    fn record_stream(&self, address: Address, stream: StreamId) -> Result<()> {
        self.blocks.look(address, |block| {
            if let Some(block) = block
                && !block.streams.contains(&stream)
            {
                block.streams.push(stream);
            }
        })?;
        self.upstream.record_stream(address, stream)
    }

    fn retire_stream(&self, stream: StreamId) {
        self.let_go(|quarantine| quarantine.take(u64::MAX, |held| held.stream == stream));
        self.upstream.retire_stream(stream);
    }

    fn trim(&self, keep: u64) -> u64 {
        self.check_all();
        self.upstream.trim(keep)
    }

    pass_on!(upstream: reaches stats driver);
}

impl<A: Allocator> Drop for Checked<A> {
    fn drop(&mut self) {
        self.check_all();
    }
}
