//! Typed, owned pinned host memory, for asynchronous copies.
//!
//! It comes from the same pool as spilled memory: mapped memory of a host node if the driver supports that, cached,
//! since pinning 1 GiB takes half a second. A buffer belongs either to the program, as a slice, or to a copy in
//! flight, and is then inaccessible: [`PinnedBuffer::copy_to`] consumes the buffer, and waiting returns it. Dropping
//! the copy instead frees the buffer when the copy is done.

use std::marker::PhantomData;
use std::mem::{ManuallyDrop, size_of};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytemuck::Pod;
use makeroom_core::{Address, Bytes};
use makeroom_cuda::{Driver, Event, EventKind};

use super::host_memory;
use crate::Stats;
use crate::allocator::{Allocator, EVERY_STREAM};
use crate::error::{PoolError, Result};
use crate::fork::Lock;
use crate::site::Site;
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stream::PoolStream;

/// A pool of pinned host memory for one device. Clones share the same pool.
#[derive(Clone, Debug)]
pub struct PinnedPool {
    shared: Arc<Shared>,
}

/// Memory that was dropped while a copy used it waits here for the copy: the pool below would wait for streams, which
/// may be destroyed by then. The fields drop in this order, because the pool below waits for everything when it is
/// dropped.
#[derive(Debug)]
struct Shared {
    allocator: Box<dyn Allocator>,
    waiting: Lock<Vec<Waiting>>,
}

/// A dropped block. It keeps its stream alive until the copy is done.
#[derive(Debug)]
struct Waiting {
    address: Address,
    done: Event,
    _stream: PoolStream,
}

impl PinnedPool {
    /// Pinned memory for a device, up to a limit. Nothing is allocated in advance.
    pub fn new(driver: &'static Driver, device: i32, limit: Option<Bytes>) -> Result<Self> {
        let allocator = host_memory(driver, device, limit)?;
        Ok(Self { shared: Arc::new(Shared { allocator, waiting: Lock::new(Vec::new()) }) })
    }

    /// Zeroed memory for `len` values.
    #[track_caller]
    pub fn zeroed<T: Pod>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        let mut buffer = self.uninitialized(len)?;
        buffer.fill(T::zeroed());
        Ok(buffer)
    }

    /// Memory with arbitrary content, which is always a valid `Pod` value.
    #[track_caller]
    pub fn uninitialized<T: Pod>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        let too_many = PoolError::TooManyElements { count: len, size: size_of::<T>() };
        let bytes = len.checked_mul(size_of::<T>()).ok_or(too_many)? as u64;
        let (shared, site) = (&self.shared, Site::here());
        shared.collect(|waiting| waiting.done.is_done().unwrap_or(false))?;
        // The host may write it at once, so no stream may still be using it.
        let allocate = || shared.allocator.allocate(bytes, EVERY_STREAM, site);
        let address = match allocate() {
            Err(error) if error.is_out_of_memory() => {
                let came = shared.collect(|waiting| waiting.done.synchronize().is_ok())?;
                if came == 0 {
                    return Err(error);
                }
                allocate()?
            }
            answer => answer?,
        };
        Ok(PinnedBuffer { pool: self.clone(), address, len, values: PhantomData })
    }

    /// The account: `reserved = live + rounding + cached`. Memory that copies still use is live.
    pub fn stats(&self) -> Stats {
        self.shared.allocator.stats()
    }

    /// Releases cached memory until at most `keep` bytes are held. Returns the bytes released.
    pub fn trim(&self, keep: u64) -> u64 {
        let _ = self.shared.collect(|waiting| waiting.done.synchronize().is_ok());
        self.shared.allocator.trim(keep)
    }
}

impl Shared {
    /// Frees blocks that copies no longer use. Returns how many. No lock is held while `is_done` waits: a copy may
    /// wait for a thread that is about to drop another.
    fn collect(&self, is_done: impl Fn(&Waiting) -> bool) -> Result<usize> {
        let all = std::mem::take(&mut *self.waiting.lock()?);
        let (done, still): (Vec<_>, Vec<_>) = all.into_iter().partition(is_done);
        self.waiting.lock()?.extend(still);
        for waiting in &done {
            // SAFETY: its owner dropped it, and the copy that used it is done. It was not freed before.
            let _ = unsafe { self.allocator.free(waiting.address, EVERY_STREAM, Site::here()) };
        }
        Ok(done.len())
    }
}

/// `len` values of `T` in pinned memory, owned by the program.
#[derive(Debug)]
pub struct PinnedBuffer<T: Pod> {
    pool: PinnedPool,
    address: Address,
    len: usize,
    values: PhantomData<T>,
}

// SAFETY: the value owns its memory exclusively, like a `Box`.
unsafe impl<T: Pod + Send> Send for PinnedBuffer<T> {}
// SAFETY: a shared reference only reads.
unsafe impl<T: Pod + Sync> Sync for PinnedBuffer<T> {}

impl<T: Pod> PinnedBuffer<T> {
    /// Copies its first values to the device in stream order, as many as the slice has.
    pub fn copy_to(self, to: &mut DeviceSliceMut<'_, T>) -> Result<InFlight<T>> {
        let part = self.first(to.len())?;
        // SAFETY: the memory is not accessed before the copy is done: `InFlight` owns it, and waits.
        unsafe { to.copy_from_host_later(part)? };
        InFlight::new(self, to.stream())
    }

    /// Fills its first values from the device in stream order, as many as the slice has.
    pub fn copy_from(mut self, from: &DeviceSlice<'_, T>) -> Result<InFlight<T>> {
        self.first(from.len())?;
        // SAFETY: as above.
        unsafe { from.copy_to_host_later(&mut self[..from.len()])? };
        InFlight::new(self, from.stream())
    }

    /// Gives up the memory without freeing it.
    fn into_raw(self) -> (PinnedPool, Address) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the value is not dropped, so the pool is moved out exactly once.
        let pool = unsafe { std::ptr::read(&raw const this.pool) };
        (pool, this.address)
    }

    fn first(&self, len: usize) -> Result<&[T]> {
        self.get(..len).ok_or(PoolError::LengthsDiffer { from: self.len, to: len })
    }
}

impl<T: Pod> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the value owns `len` values of memory, mapped for the host, at a multiple of 512; any bytes are
        // valid values of `T`. No copy is in flight, else this would be an `InFlight`.
        unsafe { std::slice::from_raw_parts(self.address.0 as *const T, self.len) }
    }
}

impl<T: Pod> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.address.0 as *mut T, self.len) }
    }
}

impl<T: Pod> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: only this value used the memory, and no copy is in flight.
        let _ = unsafe { self.pool.shared.allocator.free(self.address, EVERY_STREAM, Site::of_drop()) };
    }
}

/// Pinned memory that a copy is using.
#[derive(Debug)]
#[must_use = "dropping it frees the memory when the copy is done"]
pub struct InFlight<T: Pod> {
    /// Both are `Some` until the value is consumed or dropped.
    buffer: Option<PinnedBuffer<T>>,
    done: Option<Event>,
    stream: PoolStream,
}

impl<T: Pod> InFlight<T> {
    fn new(buffer: PinnedBuffer<T>, stream: &PoolStream) -> Result<Self> {
        let fence = || {
            let done = Event::create(stream.allocator().driver(), EventKind::NoTiming)?;
            done.record(stream.stream())?;
            Ok(done)
        };
        match fence() {
            Ok(done) => Ok(Self { buffer: Some(buffer), stream: stream.clone(), done: Some(done) }),
            Err(error) => {
                // Without an event, wait for the stream; if that fails too, leak the memory.
                if stream.synchronize().is_err() {
                    buffer.into_raw();
                }
                Err(error)
            }
        }
    }

    /// Whether the copy is done.
    pub fn is_done(&self) -> Result<bool> {
        self.done.as_ref().map_or(Ok(true), |done| Ok(done.is_done()?))
    }

    /// Waits for the copy and returns the buffer.
    pub fn wait(mut self) -> Result<PinnedBuffer<T>> {
        if let Some(done) = &self.done {
            done.synchronize()?;
        }
        self.buffer.take().ok_or(PoolError::Forked)
    }
}

impl<T: Pod> Drop for InFlight<T> {
    fn drop(&mut self) {
        let (Some(buffer), Some(done)) = (self.buffer.take(), self.done.take()) else { return };
        let (pool, address) = buffer.into_raw();
        // Fails in a forked child, which leaves the memory alone.
        if let Ok(mut waiting) = pool.shared.waiting.lock() {
            waiting.push(Waiting { address, done, _stream: self.stream.clone() });
        }
    }
}
