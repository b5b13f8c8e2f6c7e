//! Streams whose buffers come from a pool.
//!
//! A pool records events on a stream long after memory was freed on it, so a stream must not be destroyed without the
//! pool's knowledge: buffers hold their stream, and dropping the last reference retires it first.

use std::any::Any;
use std::sync::Arc;

use makeroom_core::StreamId;
use makeroom_cuda::{Event, EventKind, Stream, StreamKind};

use crate::allocator::Allocator;
use crate::error::Result;

/// A stream, and the allocator of its buffers. Clones share the same stream.
#[derive(Clone, Debug)]
pub struct PoolStream {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    stream: Stream,
    allocator: Arc<dyn Allocator>,
    /// The owner of a borrowed stream, which destroys it when dropped.
    _owner: Option<Arc<dyn Any + Send + Sync>>,
}

impl PoolStream {
    /// A new stream in the current context.
    pub fn new(allocator: Arc<dyn Allocator>) -> Result<Self> {
        let stream = Stream::create(allocator.driver(), StreamKind::NonBlocking)?;
        Ok(Self { shared: Arc::new(Shared { stream, allocator, _owner: None }) })
    }

    /// A foreign stream, such as cudarc's or a framework's, by its handle.
    ///
    /// # Safety
    ///
    /// The stream is in the context of the allocator's device and lives until this and all its clones, which every
    /// buffer on it holds, are dropped.
    pub unsafe fn borrow(allocator: Arc<dyn Allocator>, handle: u64) -> Self {
        // SAFETY: guaranteed by the caller.
        let stream = unsafe { Stream::borrow(allocator.driver(), handle) };
        Self { shared: Arc::new(Shared { stream, allocator, _owner: None }) }
    }

    /// A foreign stream that lives as long as `owner`.
    ///
    /// # Safety
    ///
    /// The stream is in the context of the allocator's device and lives until `owner` is dropped.
    #[cfg(feature = "cudarc")]
    pub(crate) unsafe fn owned_by(
        allocator: Arc<dyn Allocator>,
        handle: u64,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        // SAFETY: the owner is dropped with the last clone, after the stream was retired.
        let stream = unsafe { Stream::borrow(allocator.driver(), handle) };
        Self { shared: Arc::new(Shared { stream, allocator, _owner: Some(owner) }) }
    }

    /// The stream itself.
    pub fn stream(&self) -> &Stream {
        &self.shared.stream
    }

    /// Its id.
    pub fn id(&self) -> StreamId {
        StreamId(self.shared.stream.handle())
    }

    /// The allocator of its buffers.
    pub fn allocator(&self) -> &Arc<dyn Allocator> {
        &self.shared.allocator
    }

    /// Makes later work on this stream wait for the current work of the other.
    pub fn wait_for(&self, other: &Self) -> Result<()> {
        let event = Event::create(self.shared.allocator.driver(), EventKind::NoTiming)?;
        event.record(&other.shared.stream)?;
        Ok(self.shared.stream.wait(&event)?)
    }

    /// Waits for all its work.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.shared.stream.synchronize()?)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.allocator.retire_stream(StreamId(self.stream.handle()));
    }
}
