//! The pool: the policy on real memory, for all threads of a process.
//!
//! One lock holds policy and memory together. It is held while the driver is called and, when memory is short, while
//! the GPU is waited for: that is when nobody else could be served either.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use makeroom_core::{Address, Bytes, StreamId};
use makeroom_cuda::{Attribute, CaptureModeGuard, Context, Driver, Location, Stream};
use makeroom_place::pool::{
    Backing as _, Cause, EVERY_STREAM, FreeError, Patience, Policy, Settings, Shortage, Snapshot, Stats,
};

use crate::allocator::Allocator;
use crate::backing::{MappedMemory, Watcher};
use crate::error::{OutOfMemory, PoolError, Result, WrongAddress};
use crate::fork::Lock;
use crate::site::{Site, Sites};
use crate::stream::PoolStream;

/// How a pool is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most that may be taken from the device; `None`: what it gives.
    pub limit: Option<Bytes>,
    /// Whether the sites of blocks are kept, so that a second free names the first. On in debug builds.
    pub keeps_sites: bool,
    /// Who hears of memory that the pool takes and gives back, and may forbid it.
    pub watcher: Option<Arc<dyn Watcher>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { limit: None, keeps_sites: cfg!(debug_assertions), watcher: None }
    }
}

/// A pool of memory on one device, or of host memory for it. Cloning it is cheap and gives the same pool.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    driver: &'static Driver,
    device: i32,
    context: Arc<Context>,
    core: Lock<Core>,
}

/// What the lock guards.
#[derive(Debug)]
struct Core {
    settings: Settings,
    policy: Policy,
    memory: MappedMemory,
    sites: Option<Sites>,
}

impl Pool {
    /// A pool on a device, in its primary context.
    pub fn new(driver: &'static Driver, device: i32, options: Options) -> Result<Self> {
        let place = Location::device(device);
        Self::over(driver, device, place, &[place], options)
    }

    /// A pool of host memory that a device reaches over the bus, at `node` of the host. The host reaches it too.
    pub fn on_host(driver: &'static Driver, device: i32, node: i32, options: Options) -> Result<Self> {
        let place = Location::host_node(node);
        Self::over(driver, device, place, &[Location::device(device), place], options)
    }

    fn over(
        driver: &'static Driver,
        device: i32,
        place: Location,
        readers: &[Location],
        options: Options,
    ) -> Result<Self> {
        let device_handle = driver.device(device)?;
        if device_handle.attribute(Attribute::VirtualMemory)? == 0 {
            return Err(makeroom_cuda::Error::Missing { function: "cuMemAddressReserve" }.into());
        }
        let context = Arc::new(device_handle.retain_primary()?);
        let memory = MappedMemory::new(driver, context.clone(), place, readers, options.watcher);
        let settings = Settings { limit: options.limit.map(Bytes::get) };
        let policy = Policy::new(settings);
        let sites = options.keeps_sites.then(Sites::default);
        let core = Lock::new(Core { settings, policy, memory, sites });
        Ok(Self { inner: Arc::new(Inner { driver, device, context, core }) })
    }

    /// The device's number.
    pub fn device(&self) -> i32 {
        self.inner.device
    }

    /// A new stream whose buffers come from this pool. It does not wait for the default stream.
    pub fn stream(&self) -> Result<PoolStream> {
        let _entered = self.inner.context.enter()?;
        PoolStream::new(Arc::new(self.clone()))
    }

    /// The driver's handle of the pool's context.
    #[cfg(feature = "cudarc")]
    pub(crate) fn context_handle(&self) -> Result<u64> {
        Ok(self.inner.lock()?.memory.context().handle())
    }

    /// Makes the pool's context current on this thread.
    pub fn make_current(&self) -> Result<()> {
        Ok(self.inner.context.make_current()?)
    }

    /// The device's primary context, in which the pool is.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Waits for everything that was submitted in the pool's context. Others go on meanwhile, on the pool too.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.inner.context.enter()?;
        let _relaxed = CaptureModeGuard::relaxed(self.inner.driver)?;
        Ok(self.inner.driver.synchronize()?)
    }

    /// Changes the limit. What is above it already stays until it is trimmed.
    pub fn set_limit(&self, limit: Option<Bytes>) -> Result<()> {
        let limit = limit.map(Bytes::get);
        let mut core = self.inner.lock()?;
        core.settings.limit = limit;
        core.policy.set_limit(limit);
        Ok(())
    }

    /// Takes back what waits for streams and whose streams the GPU has passed.
    pub fn collect(&self) {
        if let Ok(mut core) = self.inner.lock() {
            let Core { policy, memory, .. } = &mut *core;
            policy.collect(memory, Patience::DoNotWait);
        }
    }

    /// Lets another device use the pool's memory, what is there and what comes.
    pub fn grant(&self, device: i32) -> Result<()> {
        let mut core = self.inner.lock()?;
        let segments = core.policy.snapshot().segments;
        Ok(core.memory.grant(Location::device(device), &segments)?)
    }

    /// Whether a stream's work is being recorded into a graph instead of done. A stream that cannot be asked is not.
    pub fn is_capturing(&self, stream: StreamId) -> bool {
        let Ok(_entered) = self.inner.context.enter() else { return false };
        // SAFETY: whoever asks for memory on a stream has it.
        let stream = unsafe { Stream::borrow(self.inner.driver, stream.0) };
        stream.is_capturing().unwrap_or(false)
    }

    /// Gives everything back to the device, blocks in use as well, and begins anew: the device's context is about to
    /// be reset, which ends all memory in it.
    ///
    /// # Safety
    ///
    /// No address that this pool handed out is used or freed afterwards.
    pub unsafe fn abandon(&self) -> Result<()> {
        self.inner.lock()?.abandon();
        Ok(())
    }

    /// How many bytes were asked for at an address in use.
    pub fn requested_at(&self, address: Address) -> Option<u64> {
        let core = self.inner.lock().ok()?;
        core.policy.block_at(address).map(|(_, requested)| requested)
    }

    /// A picture of the pool's memory.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.lock().map(|core| core.policy.snapshot()).unwrap_or_default()
    }

    /// The time that driver calls for memory have taken so far, waiting included.
    pub fn driver_time(&self) -> Duration {
        self.inner.lock().map(|core| core.memory.spent()).unwrap_or_default()
    }

    /// Begins the peaks anew from what is there now.
    pub fn reset_peaks(&self) {
        if let Ok(mut core) = self.inner.lock() {
            core.policy.reset_peaks();
        }
    }

    fn note_free(
        sites: Option<&mut Sites>,
        address: Address,
        freed: std::result::Result<makeroom_place::pool::BlockId, FreeError>,
        site: Site,
    ) -> Result<()> {
        match freed {
            Ok(block) => {
                if let Some(sites) = sites {
                    sites.freed(block, address, site);
                }
                Ok(())
            }
            Err(reason) => {
                let before = sites.and_then(|sites| sites.before(address));
                Err(PoolError::WrongAddress(Box::new(WrongAddress { reason, site, before })))
            }
        }
    }
}

impl Allocator for Pool {
    fn allocate(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address> {
        let mut core = self.inner.lock()?;
        let Core { policy, memory, sites, .. } = &mut *core;
        match policy.allocate(memory, bytes, stream) {
            Ok(allocated) => {
                if let Some(sites) = sites {
                    sites.allocated(allocated.block, allocated.address, site);
                }
                Ok(allocated.address)
            }
            Err(shortage) => Err(self.inner.out_of_memory(&mut core, *shortage)),
        }
    }

    unsafe fn free(&self, address: Address, stream: StreamId, site: Site) -> Result<()> {
        let mut core = self.inner.lock()?;
        let Core { policy, memory, sites, .. } = &mut *core;
        let freed = if stream == EVERY_STREAM {
            policy.free_idle(address)
        } else {
            policy.free(memory, address, stream)
        };
        Self::note_free(sites.as_mut(), address, freed.map(|freed| freed.block), site)
    }

    fn record_stream(&self, address: Address, stream: StreamId) -> Result<()> {
        let site = Site::here();
        let mut core = self.inner.lock()?;
        core.policy.record_stream(address, stream).map_err(|reason| {
            let before = core.sites.as_ref().and_then(|sites| sites.before(address));
            PoolError::WrongAddress(Box::new(WrongAddress { reason, site, before }))
        })
    }

    fn retire_stream(&self, stream: StreamId) {
        if let Ok(mut core) = self.inner.lock() {
            let Core { policy, memory, .. } = &mut *core;
            policy.retire_stream(memory, stream);
        }
    }

    fn trim(&self, keep: u64) -> u64 {
        let Ok(mut core) = self.inner.lock() else { return 0 };
        let Core { policy, memory, .. } = &mut *core;
        policy.trim(memory, keep, Patience::Wait)
    }

    fn reaches(&self, address: Address) -> bool {
        self.inner.lock().is_ok_and(|core| core.memory.reaches(address))
    }

    fn stats(&self) -> Stats {
        self.inner.lock().map(|core| core.policy.stats()).unwrap_or_default()
    }

    fn driver(&self) -> &'static Driver {
        self.inner.driver
    }
}

impl Inner {
    #[inline]
    fn lock(&self) -> Result<MutexGuard<'_, Core>> {
        self.core.lock()
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
    fn abandon(&mut self) {
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

impl Drop for Core {
    fn drop(&mut self) {
        self.abandon();
    }
}
