//! Pages under PyTorch's own allocator: its expandable segments become virtual, and physical memory is mapped only where
//! its blocks are.
//!
//! The policy is `makeroom_place::paged`, which the simulator runs too. This gives it memory, time and a lock:
//!
//! ```text
//! mod.rs      the calls of PyTorch's segments, by device      memory.rs   the policy's requests as driver calls
//! tokens.rs   the handles that PyTorch gets                   marks.rs    the progress of the whole device
//! settle.rs   waits, without the lock                         reports.rs  blocks come and go
//! queue.rs    reports that are applied together               kept.rs     ranges whose reports need no lock
//! ```
//!
//! PyTorch gets a token from `cuMemCreate`, and maps it, which cannot fail: it changes the policy's tables, and slots of 2 MiB
//! get memory if there is some. Growth is refused in [`Pages::create`] alone, because PyTorch handles that: it releases its
//! cache, retries, and raises its own error. One lock per device guards everything; only reports in the ranges of `kept.rs` do
//! without it. Under it, only the lock of captures is taken, and it is released during waits for the GPU (`settle.rs`), which
//! are bounded.

mod kept;
mod marks;
mod memory;
mod queue;
mod reports;
mod settle;
mod tokens;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use makeroom_core::Bytes;
use makeroom_cuda::{
    Access, AllocationProperties, Attribute, CaptureModeGuard, Code, Driver, Error, Location, PhysicalMemory,
};
use makeroom_place::paged::{Paged, Settings, Stats, Whole};
use makeroom_place::pool::PAGE;

use crate::backing::Watcher;
use crate::error::Result;
use crate::fork::Lock;
use kept::KeptRanges;
use memory::{HostMemory, PageMemory, Parts};
use queue::Queue;
pub use reports::Taken;
use reports::clock_cost;
use tokens::Tokens;
pub use tokens::is_token;

/// Free memory of the device that is not promised to PyTorch: the driver cannot hand out all that it reports.
const RESERVE: u64 = 16 << 20;
/// Records an event for all streams of a context; drivers have it since CUDA 12.5.
const CONTEXT_EVENT: &str = "cuCtxRecordEvent";
/// Host memory beyond the quota, for blocks whose device memory another process took.
const EMERGENCY: u64 = 1 << 30;

/// Options for [`Pages::new`].
#[derive(Clone, Debug)]
pub struct PagesOptions {
    /// Bytes of host memory that may take the place of device memory.
    pub host_quota: u64,
    /// The longest wait for the GPU.
    pub longest_wait: Duration,
    /// Observes device memory.
    pub watcher: Option<Arc<dyn Watcher>>,
    /// Observes host memory.
    pub host_watcher: Option<Arc<dyn Watcher>>,
}

impl Default for PagesOptions {
    fn default() -> Self {
        Self { host_quota: 0, longest_wait: Duration::from_secs(10), watcher: None, host_watcher: None }
    }
}

/// The figures of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagesStats {
    /// Those of the policy.
    pub pages: Stats,
    /// Time in driver calls, in waits, and in reports that made neither: every 64th is measured.
    pub spent: Duration,
    /// The part of it in calls that made no driver calls and did not wait.
    pub in_reports: Duration,
    /// Blocks that were placed or freed.
    pub reports: u64,
}

/// The pages of one device. Between two reports a program replaces the contents of the processor's caches, so what a report
/// uses is next to each other.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Pages {
    /// Reports so far.
    reports: AtomicU64,
    /// Bytes of blocks outside of PyTorch's segments, which its count of live bytes includes.
    outside: AtomicU64,
    /// The peak of live memory that the policy knows.
    peak_live: AtomicU64,
    kept: KeptRanges,
    inner: Lock<Inner>,
    host_quota: u64,
    driver: &'static Driver,
    device: i32,
    longest_wait: Duration,
}

#[derive(Debug)]
#[repr(C)]
struct Inner {
    /// Reports that the policy does not know yet.
    queue: Queue,
    policy: Paged,
    memory: PageMemory,
    /// Time of the reports that needed neither driver calls nor waits.
    quick: Duration,
    /// Reports are being applied; after a panic, they were.
    is_applying: bool,
    /// When reports were last applied.
    applied_at: Instant,
    /// What reading the clock adds to a measured time.
    clock: Duration,
    tokens: Tokens,
    /// The properties of the memory, once the driver has accepted them.
    properties: Option<AllocationProperties>,
}

impl Pages {
    /// Pages on a device, in its primary context.
    pub fn new(driver: &'static Driver, device: i32, options: PagesOptions) -> Result<Self> {
        let card = driver.device(device)?;
        let number = u8::try_from(device).unwrap_or(u8::MAX);
        if card.attribute(Attribute::VirtualMemory)? == 0 {
            return Err(Error::Missing { function: "cuMemAddressReserve" }.into());
        }
        // Without it, only a wait for the whole device could prove that a page is not in use.
        if !driver.has(CONTEXT_EVENT) {
            return Err(Error::Missing { function: CONTEXT_EVENT }.into());
        }
        let context = Arc::new(card.retain_primary()?);
        let can = |attribute| card.attribute(attribute).unwrap_or(0);
        let has_host = can(Attribute::HostNodeVirtualMemory) != 0;
        let host = has_host.then(|| HostMemory {
            node: can(Attribute::HostNode).max(0),
            most: options.host_quota.saturating_add(EMERGENCY),
        });
        let host_quota = if has_host { options.host_quota } else { 0 };
        let PagesOptions { longest_wait, watcher, host_watcher, .. } = options;
        let parts = Parts { driver, device, context, host, watcher, host_watcher };
        let inner = Inner {
            policy: Paged::new(Settings { host_quota }),
            memory: PageMemory::new(parts),
            tokens: Tokens::new(number),
            properties: None,
            queue: Queue::new(),
            is_applying: false,
            applied_at: Instant::now(),
            quick: Duration::ZERO,
            clock: clock_cost(),
        };
        Ok(Self {
            reports: AtomicU64::new(0),
            outside: AtomicU64::new(0),
            peak_live: AtomicU64::new(0),
            kept: KeptRanges::default(),
            driver,
            device,
            host_quota,
            longest_wait,
            inner: Lock::new(inner),
        })
    }

    /// Whether blocks may use host memory: there is a quota, and the device can use it.
    pub fn can_spill(&self) -> bool {
        self.host_quota > 0
    }

    /// Locks the pages and applies queued reports. Fails in a forked child: then the driver gets the call.
    fn lock(&self) -> Option<MutexGuard<'_, Inner>> {
        let mut inner = self.inner.lock().ok()?;
        inner.apply_reports();
        Some(inner)
    }

    /// `cuMemCreate`: a token, or the error that the program gets. `None` if the driver should serve the call.
    ///
    /// The first call with new properties goes to the driver, and its error is returned as it is: PyTorch tries kinds of
    /// handles until one is supported. Memory with other properties than the first that succeeded is not paged.
    pub fn create(
        &self,
        bytes: u64,
        properties: &AllocationProperties,
    ) -> Option<std::result::Result<u64, Code>> {
        let is_whole = bytes > 0 && bytes.is_multiple_of(PAGE);
        if !is_whole || properties.location().device_number() != Some(self.device) {
            return None;
        }
        let mut inner = self.lock()?;
        match inner.properties {
            Some(known) if known == *properties => {}
            Some(_) => return None,
            None => {
                if let Err(error) = self.try_out(bytes, properties) {
                    return Some(Err(error.code().unwrap_or(Code::NOT_SUPPORTED)));
                }
                inner.properties = Some(*properties);
                inner.memory.set_properties(*properties);
            }
        }
        let memory = &inner.memory;
        let free = memory.free().or_else(|_| memory.free()).unwrap_or(0).saturating_sub(RESERVE);
        if !inner.policy.may_map(bytes.saturating_add(inner.tokens.unmapped), free) {
            return Some(Err(Code::OUT_OF_MEMORY));
        }
        Some(Ok(inner.tokens.create(bytes)))
    }

    fn try_out(&self, bytes: u64, properties: &AllocationProperties) -> std::result::Result<(), Error> {
        let _relaxed = CaptureModeGuard::relaxed(self.driver)?;
        PhysicalMemory::create_with(self.driver, properties, Bytes::new(bytes)).map(drop)
    }

    /// `cuMemMap` of a token in a range that PyTorch reserved. A slot that needs its memory now may get the host's.
    pub fn map(
        &self,
        token: u64,
        address: u64,
        bytes: u64,
        range: (u64, u64),
    ) -> Option<std::result::Result<Taken, Code>> {
        let mut inner = self.lock()?;
        let Inner { policy, memory, tokens, .. } = &mut *inner;
        let is_valid = tokens.get(token).is_some_and(|slot| slot.bytes == bytes && slot.address.is_none());
        if !is_valid {
            return Some(Err(Code::INVALID_VALUE));
        }
        if !policy.contains(address) {
            policy.reserve(range.0, range.1);
            memory.reserve(range.0, range.1);
        }
        self.kept.remove(address);
        let Some(needs_memory) = policy.map_slot(address, bytes) else {
            return Some(Err(Code::INVALID_VALUE));
        };
        tokens.map(token, address);
        if !needs_memory {
            return Some(Ok(Taken::default()));
        }
        self.back(inner, address, bytes)?;
        self.update_kept();
        // What is missing now is requested again with the first block, so it is not missing yet.
        self.taken(0).map(Ok)
    }

    /// `cuMemSetAccess`. `None` if nothing at the address is paged.
    pub fn set_access(
        &self,
        address: u64,
        bytes: u64,
        who: &[(Location, Access)],
    ) -> Option<std::result::Result<(), Code>> {
        let mut inner = self.lock()?;
        let Inner { policy, memory, .. } = &mut *inner;
        policy.slot(address)?;
        let mut result = who.iter().try_for_each(|&(who, access)| memory.grant(address, who, access));
        let mut backed = Vec::new();
        policy.each_backed(address, bytes, |address, bytes| backed.push((address, bytes)));
        for (address, bytes) in backed {
            result = result
                .and(memory.apply_access(address, bytes).or_else(|_| memory.apply_access(address, bytes)));
        }
        Some(result.map_err(|error| error.code().unwrap_or(Code::INVALID_VALUE)))
    }

    /// `cuMemUnmap` of whole slots. `None` if nothing at the address is paged.
    pub fn unmap(&self, address: u64, bytes: u64) -> Option<std::result::Result<(), Code>> {
        let mut inner = self.lock()?;
        let Inner { policy, memory, tokens, .. } = &mut *inner;
        policy.slot(address)?;
        let (mut at, mut slots) = (address, Vec::new());
        while at < address.saturating_add(bytes) {
            let Some((start, size)) = policy.slot(at) else { return Some(Err(Code::INVALID_VALUE)) };
            if start != at {
                return Some(Err(Code::INVALID_VALUE));
            }
            self.kept.remove(start);
            policy.give_up_slot(memory, start);
            tokens.unmap(start);
            slots.push(start);
            at = start + size;
        }
        self.settle(inner, |inner, attempt| {
            let Inner { policy, memory, .. } = inner;
            slots.iter().try_for_each(|&slot| policy.release_slot(memory, attempt, slot))
        })?;
        self.update_kept();
        Some(Ok(()))
    }

    /// `cuMemRelease` of a token.
    pub fn release(&self, token: u64) -> Option<std::result::Result<(), Code>> {
        let is_known = self.lock()?.tokens.release(token);
        Some(if is_known { Ok(()) } else { Err(Code::INVALID_VALUE) })
    }

    /// PyTorch frees a range of addresses. Returns whether the driver may free it; `false` while memory is mapped in it.
    pub fn free_range(&self, address: u64) -> bool {
        let Some(inner) = self.lock() else { return true };
        self.kept.remove(address);
        let is_free = self.settle(inner, |inner, attempt| {
            let Inner { policy, memory, .. } = inner;
            if policy.release_range(memory, attempt, address)? {
                memory.unreserve(address);
            }
            Ok(!policy.contains(address))
        });
        is_free.unwrap_or(true)
    }

    /// Pages without memory in a range of addresses get it. Returns the bytes of those that cannot have any.
    fn back(&self, mut inner: MutexGuard<'_, Inner>, address: u64, bytes: u64) -> Option<u64> {
        if inner.memory.may_be_registered() {
            inner.policy.keep_large();
        }
        self.settle(inner, |inner, attempt| {
            inner.policy.back_pages(&mut inner.memory, attempt, address, bytes)
        })
    }

    /// All memory of the range that contains an address stays where it is: a captured graph may use any of it.
    pub fn exempt(&self, address: u64) {
        let Some(mut inner) = self.lock() else { return };
        if let Some((start, bytes)) = inner.policy.exempt_range(address) {
            self.back(inner, start, bytes);
        }
    }

    /// The memory under addresses stays where it is, because other code knows it by more than its address.
    pub fn pin(&self, address: u64, bytes: u64) {
        let Some(mut inner) = self.lock() else { return };
        if inner.policy.contains(address) {
            inner.policy.pin_pages(address, bytes);
            self.back(inner, address, bytes);
        }
    }

    /// The driver's handle of a token's memory, which becomes one handle of the slot's size and stays where it is. `None`
    /// if that is not possible: the token is not mapped, a capture is open, or memory is short.
    pub fn whole(&self, token: u64) -> Option<u64> {
        let address = self.lock()?.tokens.get(token)?.address?;
        self.whole_at(address)
    }

    /// The same for the slot that contains an address.
    pub fn whole_at(&self, address: u64) -> Option<u64> {
        let mut state = Whole::default();
        self.settle(self.lock()?, |inner, attempt| {
            let Inner { policy, memory, .. } = inner;
            let handle = policy.make_whole(memory, attempt, address, &mut state)?;
            Ok(handle.and_then(|handle| memory.driver_handle(handle)))
        })?
    }

    /// The properties of a token's memory, as PyTorch requested it.
    pub fn properties(&self, token: u64) -> Option<AllocationProperties> {
        let inner = self.lock()?;
        inner.tokens.get(token).and(inner.properties)
    }

    /// The access of a location to the slot that contains an address, as PyTorch set it, also while it has no memory.
    pub fn access(&self, address: u64, who: Location) -> Option<Access> {
        let inner = self.lock()?;
        inner.policy.slot(address)?;
        Some(inner.memory.access(address, who))
    }

    /// From now on, memory under large blocks stays where it is: other devices may have it registered.
    pub fn keep_large(&self) {
        if let Some(mut inner) = self.lock() {
            inner.policy.keep_large();
        }
    }

    /// Start and size of the slot that contains an address.
    pub fn slot(&self, address: u64) -> Option<(u64, u64)> {
        self.lock()?.policy.slot(address)
    }

    /// The device's primary context is about to end: nothing moves from now on.
    pub fn abandon(&self) {
        if let Some(mut inner) = self.lock() {
            inner.memory.end_time();
        }
    }

    /// The figures.
    pub fn stats(&self) -> PagesStats {
        self.inner.lock().map(|inner| self.figures(&inner)).unwrap_or_default()
    }

    /// The figures, unless another thread has the pages: for a caller that must not wait.
    pub fn stats_now(&self) -> Option<PagesStats> {
        self.inner.try_lock().ok().flatten().map(|inner| self.figures(&inner))
    }
}
