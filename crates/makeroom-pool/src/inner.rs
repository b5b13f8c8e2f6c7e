//! What a pool is made of: the core behind one lock, and sides for threads that meet there.

use std::sync::{Arc, MutexGuard};

use makeroom_core::{Address, StreamId};
use makeroom_cuda::{Context, Driver};
use makeroom_place::pool::{Cause, Means, Patience, Shortage, Stats};

use crate::core::Core;
use crate::error::{OutOfMemory, PoolError, Result};
use crate::fork::Lock;
use crate::meetings;
use crate::sides::{Sides, takes};
use crate::site::Site;

/// A pool, shared by all that use it.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) driver: &'static Driver,
    pub(crate) device: i32,
    pub(crate) context: Arc<Context>,
    core: Lock<Core>,
    /// Where sites are kept there are none: a site is looked up in the core.
    pub(crate) sides: Option<Sides>,
}

impl Inner {
    pub(crate) fn new(driver: &'static Driver, device: i32, context: Arc<Context>, core: Core) -> Self {
        let sides = core.sites.is_none().then(Sides::new);
        Self { driver, device, context, core: Lock::new(core), sides }
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
        meetings::met_another();
        self.core.lock()
    }

    /// An error in a forked child.
    pub(crate) fn check(&self) -> Result<()> {
        self.core.check()
    }

    /// Does something with the core and with all sides.
    pub(crate) fn with_all(&self, mut work: impl FnMut(&mut Core)) -> Result<()> {
        let mut core = self.lock()?;
        work(&mut core);
        self.sides.as_ref().map_or(Ok(()), |sides| sides.each(&core, work))
    }

    /// Does something with whatever an address lies in.
    #[inline]
    pub(crate) fn with<T>(
        &self,
        address: Address,
        site: Site,
        work: impl FnOnce(&mut Core) -> Result<T> + Copy,
    ) -> Result<T> {
        let beside = self.sides.as_ref().and_then(|sides| sides.with(address, site, work));
        beside.unwrap_or_else(|| work(&mut *self.lock()?))
    }

    /// The figures of all of it.
    pub(crate) fn stats(&self, core: &mut Core) -> Result<Stats> {
        match &self.sides {
            Some(sides) => sides.stats(core),
            None => Ok(core.policy.stats()),
        }
    }

    #[inline]
    pub(crate) fn allocate(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address> {
        if let Some(sides) = &self.sides
            && takes(bytes, stream)
            && let Some(number) = meetings::side()
        {
            if let Some(address) = sides.allocate_at_once(number, bytes, stream)? {
                return Ok(address);
            }
            let mut core = self.lock()?;
            if let Some(address) = sides.allocate_new(&mut core, number, bytes, stream)? {
                return Ok(address);
            }
            return self.allocate_in(core, bytes, stream, site);
        }
        self.allocate_in(self.lock()?, bytes, stream, site)
    }

    /// A block of the core.
    fn allocate_in(
        &self,
        mut core: MutexGuard<'_, Core>,
        bytes: u64,
        stream: StreamId,
        site: Site,
    ) -> Result<Address> {
        let sides = self.sides.as_ref().filter(|_| core.beside.reserved > 0);
        if let Some(sides) = sides
            && let Some(address) = Self::allocate_beside(sides, &mut core, bytes, stream)?
        {
            return Ok(address);
        }
        let Core { policy, memory, sites, .. } = &mut *core;
        match policy.allocate(memory, bytes, stream) {
            Ok(allocated) => {
                if let Some(sites) = sites {
                    sites.allocated(allocated.block, allocated.address, site);
                }
                if let Some(sides) = sides {
                    sides.stats(&mut core)?;
                }
                Ok(allocated.address)
            }
            Err(shortage) => Err(self.out_of_memory(&mut core, *shortage)),
        }
    }

    /// A block of the core beside sides: they give way before it would wait for streams for long or fail. What waits for
    /// streams in them is waited for briefly, since each of them would wait by itself.
    #[cold]
    fn allocate_beside(
        sides: &Sides,
        core: &mut Core,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<Address>> {
        if let Some(address) = core.allocate_at_once(bytes, stream) {
            return Ok(Some(address));
        }
        sides.make_way(core)?;
        for patience in [Patience::DoNotWait, Patience::WaitBriefly] {
            let Core { policy, memory, .. } = core;
            if let Ok(allocated) = policy.allocate_by(Means::Brief, memory, bytes, stream) {
                sides.stats(core)?;
                return Ok(Some(allocated.address));
            }
            sides.trim(core, patience)?;
            if let Some(address) = sides.allocate_anywhere(core, bytes, stream)? {
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
