//! Spills to host memory, which kernels reach over the bus, when the device is full.
//!
//! That is slow: on an H200 a kernel reads host memory at 51 GB/s, device memory at 3844. So as little as possible is
//! spilled, and hot memory stays on the device. For each request:
//!
//! 1. use the device while it has space: nothing is spilled before the first failure;
//! 2. if the device is full, use the host. Small blocks (below [`SpillOptions::smallest`]) go there only because the
//!    program would fail otherwise, and the report counts them;
//! 3. on a device that has been full, long-lived blocks leave some space to short-lived ones that had to be spilled:
//!    see `heat.rs`.
//!
//! Blocks do not move: a spilled block stays on the host until it is freed, even if the device has space again. Host
//! memory is mapped with the virtual memory API and cached, because creating 1 GiB takes half a second. If the driver
//! cannot map memory of a host node, pinned memory is used instead.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use makeroom_core::{Address, Bytes, StreamId};

use super::heat::{Heat, Kind};
use super::pass_on;
use super::spilled::{Spilled, Tally, Why};
use crate::allocator::Allocator;
use crate::blocks::Blocks;
use crate::error::{PoolError, Result};
use crate::fork::Lock;
use crate::host::host_memory;
use crate::site::Site;

/// Options for spilling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillOptions {
    /// Maximum host memory.
    pub quota: Bytes,
    /// Smaller blocks stay on the device, unless the program would fail.
    pub smallest: Bytes,
}

impl SpillOptions {
    /// This quota of host memory, for blocks of 1 MiB and more.
    pub fn with_quota(quota: Bytes) -> Self {
        Self { quota, smallest: Bytes::mib(1) }
    }
}

/// An allocator that spills to host memory.
#[derive(Debug)]
pub struct Spill<A> {
    upstream: A,
    host: Box<dyn Allocator>,
    options: SpillOptions,
    /// Whether the device was ever full. Before that, blocks are not even tracked.
    is_pressed: AtomicBool,
    /// Allocations since then: the clock for block lifetimes.
    clock: AtomicU64,
    blocks: Blocks<Placed>,
    heat: Lock<Heat>,
    tally: Lock<Tally>,
}

/// A block on the host, or one that could have been spilled.
#[derive(Clone, Copy, Debug)]
struct Placed {
    bytes: u64,
    kind: Kind,
    born: u64,
    is_on_host: bool,
}

impl<A: Allocator> Spill<A> {
    /// Spills from an allocator on a device. Takes no host memory before it is needed.
    pub fn new(upstream: A, device: i32, options: SpillOptions) -> Result<Self> {
        let host = host_memory(upstream.driver(), device, Some(options.quota))?;
        Ok(Self::over(upstream, host, options))
    }

    /// Spills from one allocator to another.
    pub fn over(upstream: A, host: Box<dyn Allocator>, options: SpillOptions) -> Self {
        Self {
            upstream,
            host,
            options,
            is_pressed: AtomicBool::new(false),
            clock: AtomicU64::new(0),
            blocks: Blocks::new(),
            heat: Lock::new(Heat::default()),
            tally: Lock::new(Tally::new(options.quota)),
        }
    }

    /// The upstream allocator, on the device.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// The allocator for spilled blocks.
    pub fn host(&self) -> &dyn Allocator {
        &*self.host
    }

    /// A report of spilled memory.
    pub fn spilled(&self) -> Spilled {
        self.tally.lock().map(|tally| tally.report()).unwrap_or_default()
    }

    /// Whether a block is on the host.
    pub fn is_spilled(&self, address: Address) -> bool {
        self.blocks.look(address, |placed| placed.is_some_and(|placed| placed.is_on_host)).unwrap_or(false)
    }

    fn makes_way(&self, bytes: u64, site: Site) -> Result<bool> {
        let live = || self.upstream.stats().live;
        Ok(self.heat.lock()?.prefers_host(Kind::of_block(bytes, site), bytes, live))
    }

    fn remember(&self, address: Address, bytes: u64, site: Site, is_on_host: bool) -> Result<()> {
        let born = self.clock.load(Ordering::Relaxed);
        self.blocks.insert(address, Placed { bytes, kind: Kind::of_block(bytes, site), born, is_on_host })
    }

    /// Allocates on the host. Drops the host's error, because the device's is more useful.
    fn spill(&self, bytes: u64, stream: StreamId, site: Site, why: Why) -> Result<Option<Address>> {
        let Ok(address) = self.host.allocate(bytes, stream, site) else { return Ok(None) };
        self.remember(address, bytes, site, true)?;
        self.tally.lock()?.spilled(bytes, why, bytes < self.options.smallest.get());
        Ok(Some(address))
    }

    #[cold]
    fn refused(&self, bytes: u64, stream: StreamId, site: Site, error: PoolError) -> Result<Address> {
        let PoolError::OutOfMemory(mut error) = error else { return Err(error) };
        self.heat.lock()?.refused(self.upstream.stats().reserved);
        self.is_pressed.store(true, Ordering::Relaxed);
        if let Some(address) = self.spill(bytes, stream, site, Why::NoRoom)? {
            return Ok(address);
        }
        let mut tally = self.tally.lock()?;
        tally.refused();
        let Spilled { now, quota, .. } = tally.report();
        error.spilled = Some((now, quota));
        Err(PoolError::OutOfMemory(error))
    }
}

impl<A: Allocator> Allocator for Spill<A> {
    fn allocate(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address> {
        let is_pressed = self.is_pressed.load(Ordering::Relaxed);
        let is_watched = is_pressed && bytes >= self.options.smallest.get();
        if is_pressed {
            self.clock.fetch_add(1, Ordering::Relaxed);
        }
        if is_watched
            && self.makes_way(bytes, site)?
            && let Some(address) = self.spill(bytes, stream, site, Why::MadeWay)?
        {
            return Ok(address);
        }
        match self.upstream.allocate(bytes, stream, site) {
            Ok(address) => {
                if is_watched {
                    self.remember(address, bytes, site, false)?;
                }
                Ok(address)
            }
            Err(error) => self.refused(bytes, stream, site, error),
        }
    }

    unsafe fn free(&self, address: Address, stream: StreamId, site: Site) -> Result<()> {
        let is_pressed = self.is_pressed.load(Ordering::Relaxed);
        let placed = if is_pressed { self.blocks.remove(address)? } else { None };
        let is_on_host = placed.is_some_and(|placed| placed.is_on_host);
        let owner: &dyn Allocator = if is_on_host { &*self.host } else { &self.upstream };
        // SAFETY: guaranteed by the caller.
        let freed = unsafe { owner.free(address, stream, site) };
        let Some(placed) = placed else {
            return match freed {
                // For an address of the host, its error says more: where it was freed before.
                // SAFETY: guaranteed by the caller.
                Err(_) if self.host.reaches(address) => unsafe { self.host.free(address, stream, site) },
                freed => freed,
            };
        };
        if freed.is_err() {
            self.blocks.insert(address, placed)?;
            return freed;
        }
        if placed.is_on_host {
            self.tally.lock()?.returned(placed.bytes);
        }
        let lifetime = self.clock.load(Ordering::Relaxed).saturating_sub(placed.born);
        if placed.bytes >= self.options.smallest.get() {
            self.heat.lock()?.ended(placed.kind, lifetime, placed.bytes, placed.is_on_host);
        }
        Ok(())
    }

    fn record_stream(&self, address: Address, stream: StreamId) -> Result<()> {
        if self.is_spilled(address) {
            return self.host.record_stream(address, stream);
        }
        self.upstream.record_stream(address, stream)
    }

    fn retire_stream(&self, stream: StreamId) {
        self.upstream.retire_stream(stream);
        self.host.retire_stream(stream);
    }

    /// Keeps the host memory, since creating it is slow, unless `keep` is 0.
    fn trim(&self, keep: u64) -> u64 {
        if keep == 0 {
            self.host.trim(0);
        }
        self.upstream.trim(keep)
    }

    fn reaches(&self, address: Address) -> bool {
        self.upstream.reaches(address) || self.host.reaches(address)
    }

    pass_on!(upstream: stats driver);
}
