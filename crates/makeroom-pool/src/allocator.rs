//! What a pool and every layer over it can do.
//!
//! Limits, tracking, spilling and checks are layers over an upstream, not flags on the pool: a layer is an
//! [`Allocator`] that owns another one. [`DeviceBuffer`](crate::DeviceBuffer) takes any of them.

use std::fmt;

use makeroom_core::{Address, StreamId};
use makeroom_cuda::Driver;
pub use makeroom_place::pool::EVERY_STREAM;
use makeroom_place::pool::Stats;

use crate::error::Result;
use crate::site::Site;

/// Device memory in the order of streams.
///
/// Addresses are raw here: who frees one says that nothing submitted to another stream than the named ones uses it
/// any longer. [`DeviceBuffer`](crate::DeviceBuffer) keeps these promises by itself.
pub trait Allocator: Send + Sync + fmt::Debug {
    /// Hands out memory for use on a stream, at a multiple of 512.
    fn allocate(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address>;

    /// Takes memory back: at once for what is submitted to this stream from now on, for others once the GPU has
    /// passed what the stream was given until now.
    ///
    /// # Safety
    ///
    /// The memory is not used any more, except by work that was submitted before to this stream or to one that was
    /// named with [`Allocator::record_stream`].
    unsafe fn free(&self, address: Address, stream: StreamId, site: Site) -> Result<()>;

    /// Another stream uses the memory too; its free waits for that stream.
    fn record_stream(&self, address: Address, stream: StreamId) -> Result<()>;

    /// A stream is about to end. What was freed on it becomes everybody's.
    fn retire_stream(&self, stream: StreamId);

    /// Gives unused memory back to the device until at most `keep` bytes are reserved; how many bytes went back.
    fn trim(&self, keep: u64) -> u64;

    /// Whether an address lies in memory that this allocator looks after.
    fn reaches(&self, address: Address) -> bool;

    /// The account: `reserved = live + rounding + cached`.
    fn stats(&self) -> Stats;

    /// The driver behind it.
    fn driver(&self) -> &'static Driver;
}

/// A layer over a shared allocator is a layer over an allocator.
impl<A: Allocator + ?Sized> Allocator for std::sync::Arc<A> {
    fn allocate(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address> {
        (**self).allocate(bytes, stream, site)
    }

    unsafe fn free(&self, address: Address, stream: StreamId, site: Site) -> Result<()> {
        // SAFETY: passed on to the caller.
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
