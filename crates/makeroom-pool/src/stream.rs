//! Streams whose buffers come from a pool.
//!
//! A pool puts events on a stream long after memory was freed on it, so a stream must not end behind the pool's back:
//! buffers keep their stream, and the last to let go of it tells the pool first.

use std::any::Any;
use std::sync::Arc;

use makeroom_core::StreamId;
use makeroom_cuda::{Event, EventKind, Stream, StreamKind};

use crate::allocator::Allocator;
use crate::error::Result;

/// A stream, and the allocator its buffers come from. Cloning it is cheap and gives the same stream.
#[derive(Clone, Debug)]
pub struct PoolStream {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    stream: Stream,
    allocator: Arc<dyn Allocator>,
    /// Whoever destroys a borrowed stream when it is dropped.
    _owner: Option<Arc<dyn Any + Send + Sync>>,
}

impl PoolStream {
    /// A new stream in the current context.
    pub fn new(allocator: Arc<dyn Allocator>) -> Result<Self> {
        let stream = Stream::create(allocator.driver(), StreamKind::NonBlocking)?;
        Ok(Self { shared: Arc::new(Shared { stream, allocator, _owner: None }) })
    }

    /// A stream of somebody else's, cudarc's or a framework's, by its handle.
    ///
    /// # Safety
    ///
    /// The stream is in the context of the allocator's device and lives until this and all its clones, which every
    /// buffer on it holds, are dropped.
    pub unsafe fn borrow(allocator: Arc<dyn Allocator>, handle: u64) -> Self {
        // SAFETY: passed on to the caller.
        let stream = unsafe { Stream::borrow(allocator.driver(), handle) };
        Self { shared: Arc::new(Shared { stream, allocator, _owner: None }) }
    }

    /// A stream of somebody else's, who lets it live for as long as `owner` does.
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
        // SAFETY: the owner is dropped with the last clone, after the allocator was told.
        let stream = unsafe { Stream::borrow(allocator.driver(), handle) };
        Self { shared: Arc::new(Shared { stream, allocator, _owner: Some(owner) }) }
    }

    /// The stream itself.
    pub fn stream(&self) -> &Stream {
        &self.shared.stream
    }

    /// Its identity.
    pub fn id(&self) -> StreamId {
        StreamId(self.shared.stream.handle())
    }

    /// Where its buffers come from.
    pub fn allocator(&self) -> &Arc<dyn Allocator> {
        &self.shared.allocator
    }

    /// What comes next here waits for what the other stream was given until now.
    pub fn wait_for(&self, other: &Self) -> Result<()> {
        let event = Event::create(self.shared.allocator.driver(), EventKind::NoTiming)?;
        event.record(&other.shared.stream)?;
        Ok(self.shared.stream.wait(&event)?)
    }

    /// Waits for its work.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.shared.stream.synchronize()?)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.allocator.retire_stream(StreamId(self.stream.handle()));
    }
}
