//! A limit on live memory, bytes requested and not yet freed: one atomic counter, reserved before the allocation.
//!
//! It counts requests, not the memory that the pool has reserved for them (for that, see the pool's own
//! [`Options::limit`](crate::Options)). So several limits, one per user, can share a pool. A block counts until its
//! free is requested.

use std::sync::atomic::{AtomicU64, Ordering};

use makeroom_core::{Address, Bytes, StreamId};
use makeroom_place::pool::{Cause, Shortage};

use super::pass_on;
use crate::allocator::Allocator;
use crate::blocks::Blocks;
use crate::error::{OutOfMemory, PoolError, Result};
use crate::site::Site;

/// An allocator that fails requests beyond a limit.
///
/// `passed = Σ blocks`, and `passed ≤ most` unless the limit was lowered below it.
#[derive(Debug)]
pub struct Limit<A> {
    upstream: A,
    most: AtomicU64,
    passed: AtomicU64,
    blocks: Blocks<u64>,
}

impl<A: Allocator> Limit<A> {
    /// Allows at most `limit` bytes at a time.
    pub fn new(upstream: A, limit: Bytes) -> Self {
        Self { upstream, most: AtomicU64::new(limit.get()), passed: AtomicU64::new(0), blocks: Blocks::new() }
    }

    /// The upstream allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// The limit.
    pub fn limit(&self) -> Bytes {
        Bytes::new(self.most.load(Ordering::Relaxed))
    }

    /// Changes the limit. Memory already above it stays.
    pub fn set_limit(&self, limit: Bytes) {
        self.most.store(limit.get(), Ordering::Relaxed);
    }

    /// Live bytes.
    pub fn passed(&self) -> Bytes {
        Bytes::new(self.passed.load(Ordering::Relaxed))
    }

    fn admit(&self, bytes: u64) -> std::result::Result<u64, u64> {
        let limit = self.most.load(Ordering::Relaxed);
        let within = |passed: u64| passed.checked_add(bytes).filter(|sum| *sum <= limit);
        self.passed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
    }

    #[cold]
    fn refusal(&self, requested: u64, passed: u64) -> PoolError {
        let limit = self.most.load(Ordering::Relaxed);
        let pool = Shortage {
            requested,
            cause: Cause::Limit,
            largest: limit.saturating_sub(passed),
            limit: Some(limit),
            stats: self.upstream.stats(),
        };
        PoolError::OutOfMemory(Box::new(OutOfMemory { pool, device: None, driver: None, spilled: None }))
    }
}

impl<A: Allocator> Allocator for Limit<A> {
    fn allocate(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address> {
        self.admit(bytes).map_err(|passed| self.refusal(bytes, passed))?;
        let address = self.upstream.allocate(bytes, stream, site).inspect_err(|_| {
            self.passed.fetch_sub(bytes, Ordering::Relaxed);
        })?;
        self.blocks.insert(address, bytes)?;
        Ok(address)
    }

    unsafe fn free(&self, address: Address, stream: StreamId, site: Site) -> Result<()> {
        let bytes = self.blocks.remove(address)?;
        // SAFETY: guaranteed by the caller.
        let freed = unsafe { self.upstream.free(address, stream, site) };
        match (&freed, bytes) {
            (Ok(()), Some(bytes)) => {
                self.passed.fetch_sub(bytes, Ordering::Relaxed);
            }
            (Err(_), Some(bytes)) => self.blocks.insert(address, bytes)?,
            (_, None) => {}
        }
        freed
    }

    pass_on!(upstream: record_stream retire_stream trim reaches stats driver);
}
