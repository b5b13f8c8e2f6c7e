//! The interface of a pool and of every layer over it.
//!
//! Limits, tracking, spilling and checks are layers over an upstream allocator, not flags on the pool: a layer is an
//! [`Allocator`] that owns another one. [`DeviceBuffer`](crate::DeviceBuffer) takes any of them.

use std::fmt;

use makeroom_core::{Address, StreamId};
use makeroom_cuda::Driver;
pub use makeroom_place::pool::EVERY_STREAM;
use makeroom_place::pool::Stats;

use crate::error::Result;
use crate::site::Site;

/// Stream-ordered device memory.
///
/// Addresses are raw here: the caller of a free guarantees that only work on the named streams still uses the memory.
/// [`DeviceBuffer`](crate::DeviceBuffer) ensures that by itself.
pub trait Allocator: Send + Sync + fmt::Debug {
    /// Allocates memory for use on a stream. The address is a multiple of 512.
    fn allocate(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address>;

    /// Frees memory. Later work on this stream can reuse it at once, other streams after the GPU has finished the
    /// work submitted to this one so far.
    ///
    /// # Safety
    ///
    /// The memory is no longer used, except by work already submitted to this stream or to one named with
    /// [`Allocator::record_stream`].
    unsafe fn free(&self, address: Address, stream: StreamId, site: Site) -> Result<()>;

    /// Another stream uses the memory too; its free waits for that stream.
    fn record_stream(&self, address: Address, stream: StreamId) -> Result<()>;

    /// A stream is about to be destroyed. Memory freed on it becomes available to every stream.
    fn retire_stream(&self, stream: StreamId);

    /// Releases cached memory to the device until at most `keep` bytes are reserved. Returns the bytes released.
    fn trim(&self, keep: u64) -> u64;

    /// Whether an address is in memory that this allocator manages.
    fn reaches(&self, address: Address) -> bool;

    /// The account: `reserved = live + rounding + cached`.
    fn stats(&self) -> Stats;

    /// The driver behind this allocator.
    fn driver(&self) -> &'static Driver;
}

/// A shared allocator is an allocator too, so layers can own one.
impl<A: Allocator + ?Sized> Allocator for std::sync::Arc<A> {
    fn allocate(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address> {
        (**self).allocate(bytes, stream, site)
    }

    unsafe fn free(&self, address: Address, stream: StreamId, site: Site) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { (**self).free(address, stream, site) }
    }

    fn record_stream(&self, address: Address, stream: StreamId) -> Result<()> {
        (**self).record_stream(address, stream)
    }

    fn retire_stream(&self, stream: StreamId) {
        (**self).retire_stream(stream);
    }

    fn trim(&self, keep: u64) -> u64 {
        (**self).trim(keep)
    }

    fn reaches(&self, address: Address) -> bool {
        (**self).reaches(address)
    }

    fn stats(&self) -> Stats {
        (**self).stats()
    }

    fn driver(&self) -> &'static Driver {
        (**self).driver()
    }
}
