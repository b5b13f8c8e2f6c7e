//! The pool: the policy on real memory, for all threads of a process.
//!
//! One lock protects policy and memory. It is held during driver calls and while waiting for the GPU: briefly, if
//! that saves new memory, and longer if there is none. Under contention threads take small blocks from arenas
//! (`arenas.rs`).

use std::sync::Arc;
use std::time::Duration;

use makeroom_core::{Address, Bytes, StreamId};
use makeroom_cuda::{Attribute, CaptureModeGuard, Context, Driver, Location, Stream};
use makeroom_place::pool::{Settings, Snapshot, Stats, Timeout};

use crate::allocator::Allocator;
use crate::backing::{MappedMemory, Watcher};
use crate::core::Core;
use crate::error::Result;
use crate::inner::Inner;
use crate::site::{Site, Sites};
use crate::stream::PoolStream;

/// Options of a pool.
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum memory to take from the device; `None` for all of it.
    pub limit: Option<Bytes>,
    /// Whether to keep the sites of blocks, so that a double free names the first free. On in debug builds.
    pub keeps_sites: bool,
    /// Observer of the memory that the pool takes and releases; it may forbid either.
    pub watcher: Option<Arc<dyn Watcher>>,
    /// How long a request that nothing else can serve waits for each stream that holds memory it could use. Bounded,
    /// because the stream may be waiting for the calling thread.
    pub longest_wait: Duration,
}

/// Default timeout for a stream.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(10);

impl Default for Options {
    fn default() -> Self {
        Self { limit: None, keeps_sites: cfg!(debug_assertions), watcher: None, longest_wait: LONGEST_WAIT }
    }
}

/// A memory pool on one device, or of host memory for it. Clones share the same pool.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Inner>,
}

impl Pool {
    /// A pool on a device, in its primary context.
    pub fn new(driver: &'static Driver, device: i32, options: Options) -> Result<Self> {
        let place = Location::device(device);
        Self::over(driver, device, place, &[place], options)
    }

    /// A pool of host memory at `node` that a device reaches over the bus. The host reaches it too.
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
        let Options { watcher, longest_wait, .. } = options;
        let memory = MappedMemory::new(driver, context.clone(), place, readers, longest_wait, watcher);
        let settings = Settings { limit: options.limit.map(Bytes::get) };
        let core = Core::new(settings, memory, options.keeps_sites.then(Sites::default));
        Ok(Self { inner: Arc::new(Inner::new(driver, device, context, core)) })
    }

    /// The device's index.
    pub fn device(&self) -> i32 {
        self.inner.device
    }

    /// A new stream whose buffers come from this pool. It does not synchronize with the default stream.
    pub fn stream(&self) -> Result<PoolStream> {
        self.inner.check()?;
        let _entered = self.inner.context.enter()?;
        PoolStream::new(Arc::new(self.clone()))
    }

    /// The driver's handle of the pool's context.
    #[cfg(feature = "cudarc")]
    pub(crate) fn context_handle(&self) -> u64 {
        self.inner.context.handle()
    }

    /// Makes the pool's context current on this thread.
    pub fn make_current(&self) -> Result<()> {
        self.inner.check()?;
        Ok(self.inner.context.make_current()?)
    }

    /// The device's primary context, in which the pool lives.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Waits for all work submitted in the pool's context. Other threads can use the pool in the meantime.
    pub fn synchronize(&self) -> Result<()> {
        self.inner.check()?;
        let _entered = self.inner.context.enter()?;
        let _relaxed = CaptureModeGuard::relaxed(self.inner.driver)?;
        Ok(self.inner.driver.synchronize()?)
    }

    /// The limit on device memory.
    pub fn limit(&self) -> Option<Bytes> {
        self.inner.lock().ok()?.settings.limit.map(Bytes::new)
    }

    /// Changes the limit. Memory already above it stays until it is trimmed.
    pub fn set_limit(&self, limit: Option<Bytes>) -> Result<()> {
        let limit = limit.map(Bytes::get);
        let mut core = self.inner.lock()?;
        core.settings.limit = limit;
        let reserved = core.arena_totals.reserved;
        core.set_arena_reserved(reserved);
        Ok(())
    }

    /// Collects freed memory whose streams the GPU has passed.
    pub fn collect(&self) {
        // Fails in a forked child, which has nothing to collect.
        let _ = self.inner.with_all(|Core { policy, memory, .. }| {
            policy.collect(memory, Timeout::DoNotWait);
        });
    }

    /// Gives another device access to the pool's memory, current and future.
    pub fn grant(&self, device: i32) -> Result<()> {
        let mut granted = Ok(());
        self.inner.with_all(|core| {
            if granted.is_ok() {
                let segments = core.policy.snapshot().segments;
                granted = core.memory.grant(device, self.inner.device, &segments);
            }
        })?;
        Ok(granted?)
    }

    /// Whether a stream is being captured into a graph. False if the driver does not say.
    pub fn is_capturing(&self, stream: StreamId) -> bool {
        let Ok(_entered) = self.inner.context.enter() else { return false };
        // SAFETY: the caller uses this stream for memory, so it is live.
        let stream = unsafe { Stream::borrow(self.inner.driver, stream.0) };
        stream.is_capturing().unwrap_or(false)
    }

    /// Releases everything to the device, including live blocks, and starts over: the device's context is about to be
    /// reset, which frees all memory in it.
    ///
    /// # Safety
    ///
    /// No address that this pool handed out is used or freed afterwards.
    pub unsafe fn abandon(&self) -> Result<()> {
        let mut core = self.inner.lock()?;
        if !core.abandon() {
            return Ok(());
        }
        self.inner.arenas.as_ref().map_or(Ok(()), |arenas| arenas.abandon(&mut core))
    }

    /// The requested size of the live block at an address.
    pub fn requested_at(&self, address: Address) -> Option<u64> {
        let found = self.inner.with(address, Site::here(), |core| Ok(core.policy.block_at(address)));
        found.ok()?.map(|(_, requested)| requested)
    }

    /// The live block that contains an address: its start and requested size.
    pub fn block_around(&self, address: Address) -> Option<(Address, u64)> {
        let found = self.inner.with(address, Site::here(), |core| Ok(core.policy.block_around(address)));
        found.ok().flatten()
    }

    /// A snapshot of the pool's memory.
    pub fn snapshot(&self) -> Snapshot {
        let mut all = Snapshot::default();
        // Fails in a forked child, which has none.
        let _ = self.inner.with_all(|core| {
            let Snapshot { segments, unmapped } = core.policy.snapshot();
            all.segments.extend(segments);
            all.unmapped.extend(unmapped);
        });
        all.segments.sort_by_key(|segment| segment.address);
        all
    }

    /// Time spent in driver calls for memory so far, including waits.
    pub fn driver_time(&self) -> Duration {
        let mut spent = Duration::ZERO;
        let _ = self.inner.with_all(|core| spent += core.memory.spent());
        spent
    }

    /// Resets the peaks to the current values.
    pub fn reset_peaks(&self) {
        let _ = self.inner.with_all(|core| {
            core.policy.reset_peaks();
            (core.arena_totals.peak_live, core.arena_totals.peak_reserved) = (0, 0);
        });
    }
}

impl Allocator for Pool {
    fn allocate(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address> {
        self.inner.allocate_from_core_or_arena(bytes, stream, site)
    }

    unsafe fn free(&self, address: Address, stream: StreamId, site: Site) -> Result<()> {
        self.inner.with(address, site, |core| core.free(address, stream, site))
    }

    fn record_stream(&self, address: Address, stream: StreamId) -> Result<()> {
        let site = Site::here();
        self.inner.with(address, site, |core| core.record_stream(address, stream, site))
    }

    fn retire_stream(&self, stream: StreamId) {
        // It is the same stream everywhere, so one wait suffices.
        let mut timeout = Timeout::WaitBriefly;
        // Fails in a forked child, which has no streams.
        let _ = self.inner.with_all(|Core { policy, memory, .. }| {
            if policy.retire_stream(memory, stream, timeout) {
                timeout = Timeout::DoNotWait;
            }
        });
    }

    fn trim(&self, keep: u64) -> u64 {
        let Ok(mut core) = self.inner.lock() else { return 0 };
        let own = core.policy.stats().reserved;
        let above = (own + core.arena_totals.reserved).saturating_sub(keep);
        if above == 0 {
            return 0;
        }
        let from_arenas =
            self.inner.arenas.as_ref().map_or(Ok(0), |arenas| arenas.trim(&mut core, Timeout::WaitBriefly));
        let from_arenas = from_arenas.unwrap_or(0);
        let Core { policy, memory, .. } = &mut *core;
        from_arenas
            + policy.trim(memory, own.saturating_sub(above.saturating_sub(from_arenas)), Timeout::Wait)
    }

    fn reaches(&self, address: Address) -> bool {
        let site = Site::here();
        self.inner.with(address, site, |core| Ok(core.memory.reaches(address))).unwrap_or(false)
    }

    fn stats(&self) -> Stats {
        self.inner.lock().and_then(|mut core| self.inner.stats(&mut core)).unwrap_or_default()
    }

    fn driver(&self) -> &'static Driver {
        self.inner.driver
    }
}
