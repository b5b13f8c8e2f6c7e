//! What a pool is made of: the policy and its memory behind one lock, and the caches of threads that meet there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

use makeroom_core::{Address, StreamId};
use makeroom_cuda::{Context, Driver};
use makeroom_place::pool::{Backing as _, Cause, FreeError, Policy, Settings, Shortage};

use crate::allocator::EVERY_STREAM;
use crate::backing::MappedMemory;
use crate::caches::{Caches, Kept, size_of_known};
use crate::error::{OutOfMemory, PoolError, Result, WrongAddress};
use crate::fork::Lock;
use crate::meetings::{keeps_away, met_another};
use crate::site::{Site, Sites};

/// A pool, shared by all that use it.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) driver: &'static Driver,
    pub(crate) device: i32,
    pub(crate) context: Arc<Context>,
    core: Lock<Core>,
    /// How many threads wait for the core. Whoever can do without it leaves it to them: the lock itself is not fair.
    waiting: AtomicUsize,
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
    pub(crate) fn new(driver: &'static Driver, device: i32, context: Arc<Context>, core: Core) -> Self {
        let caches = core.sites.is_none().then(Caches::new);
        Self { driver, device, context, core: Lock::new(core), waiting: AtomicUsize::new(0), caches }
    }

    /// The core, waited for.
    #[inline]
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Core>> {
        match self.core.try_lock()? {
            Some(core) => Ok(core),
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> Result<MutexGuard<'_, Core>> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let core = self.core.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        core
    }

    /// The core, unless another thread has it or waits for it, or did so lately.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Option<MutexGuard<'_, Core>>> {
        if keeps_away() {
            return Ok(None);
        }
        let is_wanted = self.waiting.load(Ordering::Relaxed) > 0;
        let core = if is_wanted { None } else { self.core.try_lock()? };
        if core.is_none() {
            met_another();
        }
        Ok(core)
    }

    /// An error in a forked child.
    pub(crate) fn check(&self) -> Result<()> {
        self.core.check()
    }

    /// The core with nothing in the caches, so that its figures are true.
    pub(crate) fn settled(&self) -> Result<MutexGuard<'_, Core>> {
        let mut core = self.lock()?;
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
        if let Some(caches) = self.caches.as_ref().filter(|caches| caches.are_used()) {
            if let Some(address) = core.allocate_at_once(bytes, stream) {
                return Ok(address);
            }
            // One after the other: a thread whose cache was emptied for nothing has to come here for every block.
            for kept in caches.empty() {
                if core.take_back(caches, &kept?)?
                    && let Some(address) = core.allocate_at_once(bytes, stream)
                {
                    return Ok(address);
                }
            }
            core.correct_sizes(caches)?;
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
        let mut core = self.lock()?;
        if let Some(rounded) = size_of_known(bytes, stream)
            && let Some(address) = core.allocate_at_once(rounded, stream)
        {
            // Nobody frees it before it is handed out, so others need not wait until it is known.
            drop(core);
            caches.learn(address, rounded, bytes)?;
            return Ok(address);
        }
        // Growing for the sake of rounding is not worth it.
        self.allocate(core, bytes, stream, site)
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
    /// A block where memory lies free for it, without a site: where sites are kept there are no caches.
    fn allocate_at_once(&mut self, bytes: u64, stream: StreamId) -> Option<Address> {
        let Self { policy, memory, .. } = self;
        Some(policy.allocate_at_once(memory, bytes, stream)?.address)
    }

    /// Empties the caches, and tells the policy the true sizes of what came from them.
    #[cold]
    pub(crate) fn settle(&mut self, caches: &Caches) -> Result<()> {
        for kept in caches.empty() {
            self.take_back(caches, &kept?)?;
        }
        self.correct_sizes(caches)
    }

    fn correct_sizes(&mut self, caches: &Caches) -> Result<()> {
        caches.true_sizes(|address, requested| self.policy.relabel(address, requested))
    }

    /// Blocks that a cache kept are the policy's; whether there were any.
    pub(crate) fn take_back(&mut self, caches: &Caches, kept: &[Kept]) -> Result<bool> {
        for kept in kept {
            caches.left(kept.address)?;
            // It was in use for the policy, so it can be freed.
            let _ = self.policy.free(&mut self.memory, kept.address, kept.stream);
        }
        Ok(!kept.is_empty())
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
