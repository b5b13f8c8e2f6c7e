//! A policy on its memory: the state under one of the pool's locks.

use std::sync::Arc;

use makeroom_core::{Address, StreamId};
use makeroom_cuda::AddressRange;
use makeroom_place::pool::{Backing as _, FreeError, Means, Policy, Settings, Stats, Timeout};

use crate::allocator::EVERY_STREAM;
use crate::backing::MappedMemory;
use crate::error::{PoolError, Result, WrongAddress};
use crate::site::{Site, Sites};

/// A policy and its memory.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) policy: Policy,
    pub(crate) memory: MappedMemory,
    pub(crate) sites: Option<Sites>,
    pub(crate) arena_totals: ArenaTotals,
}

/// What the pool's core knows about its arenas.
///
/// `policy.limit = settings.limit − reserved`
#[derive(Debug, Default)]
pub(crate) struct ArenaTotals {
    /// The addresses of all arenas, once reserved.
    pub(crate) addresses: Option<Arc<AddressRange>>,
    /// The driver has no addresses for arenas.
    pub(crate) is_without: bool,
    /// Device memory held by all arenas.
    pub(crate) reserved: u64,
    /// Peaks of live and reserved memory, in the core and all arenas together.
    pub(crate) peak_live: u64,
    pub(crate) peak_reserved: u64,
}

impl Core {
    pub(crate) fn new(settings: Settings, memory: MappedMemory, sites: Option<Sites>) -> Self {
        Self { settings, policy: Policy::new(settings), memory, sites, arena_totals: ArenaTotals::default() }
    }

    /// Allocates from free memory only.
    #[inline]
    pub(crate) fn allocate_at_once(&mut self, bytes: u64, stream: StreamId) -> Option<Address> {
        let Self { policy, memory, .. } = self;
        Some(policy.allocate_at_once(memory, bytes, stream)?.address)
    }

    /// Allocates, with new memory if need be; `None` if there is none.
    pub(crate) fn allocate_new(&mut self, bytes: u64, stream: StreamId) -> Option<Address> {
        let Self { policy, memory, .. } = self;
        Some(policy.allocate_by(Means::New, memory, bytes, stream).ok()?.address)
    }

    pub(crate) fn free(&mut self, address: Address, stream: StreamId, site: Site) -> Result<()> {
        let Self { policy, memory, sites, .. } = self;
        let freed = if stream == EVERY_STREAM {
            policy.free_idle(address)
        } else {
            policy.free(memory, address, stream)
        };
        let freed = freed.map_err(|reason| wrong_address(reason, site, sites.as_ref()))?;
        if let Some(sites) = sites {
            sites.freed(freed.block, address, site);
        }
        Ok(())
    }

    pub(crate) fn record_stream(&mut self, address: Address, stream: StreamId, site: Site) -> Result<()> {
        let recorded = self.policy.record_stream(address, stream);
        recorded.map_err(|reason| wrong_address(reason, site, self.sites.as_ref()))
    }

    /// Updates the device memory held by arenas, and the core's limit with it.
    pub(crate) fn set_arena_reserved(&mut self, reserved: u64) {
        self.arena_totals.reserved = reserved;
        self.policy.set_limit(self.settings.limit.map(|limit| limit.saturating_sub(reserved)));
    }

    /// An arena has grown by `taken` bytes: releases as much to the device if more than `most` is cached.
    pub(crate) fn give_way(&mut self, taken: u64, most: u64) {
        let Self { policy, memory, .. } = self;
        let stats = policy.stats();
        if stats.cached > most {
            policy.trim(memory, stats.reserved.saturating_sub(taken), Timeout::DoNotWait);
        }
    }

    /// Statistics of the whole pool, given those of its arenas, with the pool's own peaks.
    pub(crate) fn with_arenas(&mut self, arenas: &Stats) -> Stats {
        let own = self.policy.stats();
        let mut all = own.plus(arenas);
        // A request that an arena cannot serve is not a failure.
        all.done.refusals = own.done.refusals;
        let peaks = &mut self.arena_totals;
        peaks.peak_live = peaks.peak_live.max(own.peak_live).max(all.live);
        peaks.peak_reserved = peaks.peak_reserved.max(own.peak_reserved).max(all.reserved);
        Stats { peak_live: peaks.peak_live, peak_reserved: peaks.peak_reserved, ..all }
    }

    /// Releases everything, including live blocks. Returns whether that was possible.
    pub(crate) fn abandon(&mut self) -> bool {
        // The GPU may still be using freed memory, and unmapping does not wait for it.
        if !self.memory.come_to_rest() {
            return false;
        }
        for segment in self.policy.snapshot().segments {
            let mut address = segment.address;
            for piece in segment.pieces {
                // What the driver fails to unmap leaks until the process exits.
                let _ = self.memory.unmap(address, piece).or_else(|_| self.memory.unmap(address, piece));
                let _ = self.memory.release(piece);
                address = Address(address.0 + piece.size);
            }
        }
        for piece in self.policy.snapshot().unmapped {
            let _ = self.memory.release(piece);
        }
        self.memory.forget_time();
        self.policy = Policy::new(self.settings);
        self.sites = self.sites.take().map(|_| Sites::default());
        true
    }
}

/// The error for an address that is not live, with the sites of its previous block if known.
pub(crate) fn wrong_address(reason: FreeError, site: Site, sites: Option<&Sites>) -> PoolError {
    let address = reason.address();
    let before = sites.and_then(|sites| sites.before(address));
    PoolError::WrongAddress(Box::new(WrongAddress { reason, site, before }))
}

impl Drop for Core {
    fn drop(&mut self) {
        self.abandon();
    }
}
