//! The inside of a pool: the core behind one mutex, and per-thread arenas for threads that contend for it.

use std::sync::{Arc, MutexGuard};

use makeroom_core::{Address, StreamId};
use makeroom_cuda::{Context, Driver};
use makeroom_place::pool::{Cause, Means, Shortage, Stats, Timeout};

use crate::arenas::{Arenas, takes};
use crate::contention;
use crate::core::Core;
use crate::error::{OutOfMemory, PoolError, Result};
use crate::fork::Lock;
use crate::site::Site;

/// A pool, shared by its clones.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) driver: &'static Driver,
    pub(crate) device: i32,
    pub(crate) context: Arc<Context>,
    core: Lock<Core>,
    /// `None` if sites are kept: those are looked up in the core.
    pub(crate) arenas: Option<Arenas>,
}

impl Inner {
    pub(crate) fn new(driver: &'static Driver, device: i32, context: Arc<Context>, core: Core) -> Self {
        let arenas = core.sites.is_none().then(Arenas::new);
        Self { driver, device, context, core: Lock::new(core), arenas }
    }

    /// Locks the core. Counts contention.
    #[inline]
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Core>> {
        match self.core.try_lock()? {
            Some(core) => Ok(core),
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> Result<MutexGuard<'_, Core>> {
        contention::met_another();
        self.core.lock()
    }

    /// Fails in a forked child.
    pub(crate) fn check(&self) -> Result<()> {
        self.core.check()
    }

    /// Runs `work` on the core and on all arenas.
    pub(crate) fn with_all(&self, mut work: impl FnMut(&mut Core)) -> Result<()> {
        let mut core = self.lock()?;
        work(&mut core);
        self.arenas.as_ref().map_or(Ok(()), |arenas| arenas.each(&core, work))
    }

    /// Runs `work` on the arena or core that contains an address.
    #[inline]
    pub(crate) fn with<T>(
        &self,
        address: Address,
        site: Site,
        work: impl FnOnce(&mut Core) -> Result<T> + Copy,
    ) -> Result<T> {
        let in_arena = self.arenas.as_ref().and_then(|arenas| arenas.with(address, site, work));
        in_arena.unwrap_or_else(|| work(&mut *self.lock()?))
    }

    /// Statistics of the whole pool.
    pub(crate) fn stats(&self, core: &mut Core) -> Result<Stats> {
        match &self.arenas {
            Some(arenas) => arenas.stats(core),
            None => Ok(core.policy.stats()),
        }
    }

    #[inline]
    pub(crate) fn allocate_from_core_or_arena(
        &self,
        bytes: u64,
        stream: StreamId,
        site: Site,
    ) -> Result<Address> {
        if let Some(arenas) = &self.arenas
            && takes(bytes, stream)
            && let Some(number) = contention::arena()
        {
            if let Some(address) = arenas.allocate_at_once(number, bytes, stream)? {
                return Ok(address);
            }
            let mut core = self.lock()?;
            if let Some(address) = arenas.allocate_new(&mut core, number, bytes, stream)? {
                return Ok(address);
            }
            return self.allocate_in(core, bytes, stream, site);
        }
        self.allocate_in(self.lock()?, bytes, stream, site)
    }

    /// Allocates from the core.
    fn allocate_in(
        &self,
        mut core: MutexGuard<'_, Core>,
        bytes: u64,
        stream: StreamId,
        site: Site,
    ) -> Result<Address> {
        let arenas = self.arenas.as_ref().filter(|_| core.arena_totals.reserved > 0);
        if let Some(arenas) = arenas
            && let Some(address) = Self::allocate_from_arenas(arenas, &mut core, bytes, stream)?
        {
            return Ok(address);
        }
        let Core { policy, memory, sites, .. } = &mut *core;
        match policy.allocate_block(memory, bytes, stream) {
            Ok(allocated) => {
                if let Some(sites) = sites {
                    sites.allocated(allocated.block, allocated.address, site);
                }
                if let Some(arenas) = arenas {
                    arenas.stats(&mut core)?;
                }
                Ok(allocated.address)
            }
            Err(shortage) => Err(self.out_of_memory(&mut core, *shortage)),
        }
    }

    /// Allocates from the core while arenas hold memory: they are trimmed before the core waits long for streams or
    /// fails. Each arena would wait for its streams separately, so those waits are brief.
    #[cold]
    fn allocate_from_arenas(
        arenas: &Arenas,
        core: &mut Core,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<Address>> {
        if let Some(address) = core.allocate_at_once(bytes, stream) {
            return Ok(Some(address));
        }
        arenas.make_way(core)?;
        for timeout in [Timeout::DoNotWait, Timeout::WaitBriefly] {
            let Core { policy, memory, .. } = core;
            if let Ok(allocated) = policy.allocate_by(Means::Brief, memory, bytes, stream) {
                arenas.stats(core)?;
                return Ok(Some(allocated.address));
            }
            arenas.trim(core, timeout)?;
            if let Some(address) = arenas.allocate_anywhere(core, bytes, stream)? {
                return Ok(Some(address));
            }
        }
        Ok(None)
    }

    #[cold]
    fn out_of_memory(&self, core: &mut Core, mut pool: Shortage) -> PoolError {
        let driver = match pool.cause {
            Cause::Device => core.memory.take_refusal(),
            Cause::Limit | Cause::TooLarge => None,
        };
        pool.limit = core.settings.limit;
        pool.stats = self.stats(core).unwrap_or(pool.stats);
        let device = self.context.enter().ok().and_then(|_entered| self.driver.memory().ok());
        PoolError::OutOfMemory(Box::new(OutOfMemory { pool, device, driver, spilled: None }))
    }
}
