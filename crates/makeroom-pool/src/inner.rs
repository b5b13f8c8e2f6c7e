//! What a pool is made of: the policy and its memory behind one lock, and the caches of threads that meet there.

use std::sync::{Arc, MutexGuard};

use makeroom_core::{Address, StreamId};
use makeroom_cuda::{Context, Driver};
use makeroom_place::pool::{Backing as _, Cause, FreeError, Policy, Settings, Shortage};

use crate::allocator::EVERY_STREAM;
use crate::backing::MappedMemory;
use crate::caches::{Caches, Kept, keeps_away, met_another, size_of_known};
use crate::error::{OutOfMemory, PoolError, Result, WrongAddress};
use crate::fork::Lock;
use crate::site::{Site, Sites};

/// A pool, shared by all that use it.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) driver: &'static Driver,
    pub(crate) device: i32,
    pub(crate) context: Arc<Context>,
    pub(crate) core: Lock<Core>,
    /// Where sites are kept there are none: a block that comes from a cache has no site.
    pub(crate) caches: Option<Caches>,
}

/// What the lock guards.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) policy: Policy,
    pub(crate) memory: MappedMemory,
    pub(crate) sites: Option<Sites>,
}

impl Inner {
    /// The core, waited for.
    #[inline]
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Core>> {
        self.core.lock()
    }

    /// The core, unless another thread has it, or had it lately.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Option<MutexGuard<'_, Core>>> {
        if keeps_away() {
            return Ok(None);
        }
        let core = self.core.try_lock()?;
        if core.is_none() {
            met_another();
        }
        Ok(core)
    }

    /// The core with nothing in the caches, so that its figures are true.
    pub(crate) fn settled(&self) -> Result<MutexGuard<'_, Core>> {
        let mut core = self.core.lock()?;
        if let Some(caches) = self.caches.as_ref().filter(|caches| caches.are_used()) {
            core.settle(caches)?;
        }
        Ok(core)
    }

    /// A block of the policy's; the caches are emptied where it would do more than hand out what lies free.
    pub(crate) fn allocate(
        &self,
        mut core: MutexGuard<'_, Core>,
        bytes: u64,
        stream: StreamId,
        site: Site,
    ) -> Result<Address> {
        if let Some(caches) = self.caches.as_ref().filter(|caches| caches.are_used())
            && !core.has_room(bytes, stream)
        {
            core.settle(caches)?;
        }
        let Core { policy, memory, sites, .. } = &mut *core;
        match policy.allocate(memory, bytes, stream) {
            Ok(allocated) => {
                if let Some(sites) = sites {
                    sites.allocated(allocated.block, allocated.address, site);
                }
                Ok(allocated.address)
            }
            Err(shortage) => Err(self.out_of_memory(&mut core, *shortage)),
        }
    }

    /// A block that may go to a cache when it is freed, if its kind is kept.
    pub(crate) fn allocate_known(
        &self,
        caches: &Caches,
        bytes: u64,
        stream: StreamId,
        site: Site,
    ) -> Result<Address> {
        let Some(rounded) = size_of_known(bytes, stream) else {
            return self.allocate(self.lock()?, bytes, stream, site);
        };
        let mut core = self.lock()?;
        if !core.has_room(rounded, stream) {
            // Growing for the sake of rounding is not worth it.
            return self.allocate(core, bytes, stream, site);
        }
        let Core { policy, memory, .. } = &mut *core;
        match policy.allocate(memory, rounded, stream) {
            Ok(allocated) => {
                caches.learn(allocated.address, rounded, bytes)?;
                Ok(allocated.address)
            }
            Err(shortage) => Err(self.out_of_memory(&mut core, *shortage)),
        }
    }

    #[cold]
    fn out_of_memory(&self, core: &mut Core, pool: Shortage) -> PoolError {
        let driver = match pool.cause {
            Cause::Device => core.memory.take_refusal(),
            Cause::Limit | Cause::TooLarge => None,
        };
        let device = self.context.enter().ok().and_then(|_entered| self.driver.memory().ok());
        PoolError::OutOfMemory(Box::new(OutOfMemory { pool, device, driver, spilled: None }))
    }
}

impl Core {
    fn has_room(&mut self, bytes: u64, stream: StreamId) -> bool {
        self.policy.has_room(&mut self.memory, bytes, stream)
    }

    /// Empties the caches, and tells the policy the true sizes of what came from them.
    #[cold]
    pub(crate) fn settle(&mut self, caches: &Caches) -> Result<()> {
        let kept = caches.empty()?;
        self.take_back(caches, &kept)?;
        caches.true_sizes(|address, requested| self.policy.relabel(address, requested))
    }

    /// Blocks that a cache kept are the policy's.
    pub(crate) fn take_back(&mut self, caches: &Caches, kept: &[Kept]) -> Result<()> {
        for kept in kept {
            caches.left(kept.address)?;
            // It was in use for the policy, so it can be freed.
            let _ = self.policy.free(&mut self.memory, kept.address, kept.stream);
        }
        Ok(())
    }

    /// Frees a block below all caches.
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

    /// Gives everything back, blocks in use as well.
    pub(crate) fn abandon(&mut self) {
        // Freed memory may still be in use on the GPU, and unmapping does not wait for it.
        if !self.memory.come_to_rest() {
            return;
        }
        for segment in self.policy.snapshot().segments {
            let mut address = segment.address;
            for piece in segment.pieces {
                // What the driver will not unmap stays until the process ends: nobody is left to be told.
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
    }
}

/// An address that is not in use, with what is known of who used it before.
pub(crate) fn wrong_address(reason: FreeError, site: Site, sites: Option<&Sites>) -> PoolError {
    let (FreeError::Foreign(address) | FreeError::NotInUse(address)) = reason;
    let before = sites.and_then(|sites| sites.before(address));
    PoolError::WrongAddress(Box::new(WrongAddress { reason, site, before }))
}

impl Drop for Core {
    fn drop(&mut self) {
        self.abandon();
    }
}
