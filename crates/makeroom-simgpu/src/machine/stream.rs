//! Streams, and the clock that they run on.
//!
//! Time is simulated. It moves when a test says so, when a call waits (the clock jumps to the end of what is
//! waited for, at no cost in real time), and by a microsecond when a query finds work unfinished, so that a
//! program that polls comes to an end. Work is done when it is submitted; what the clock decides is only when
//! it counts as complete.

use std::collections::BTreeMap;

use super::{CaptureId, ContextId, EventId, Machine, StreamId};
use crate::status::{Result, Status};

/// What a query that finds work unfinished takes.
const QUERY: u64 = 1_000;
/// The highest priority; the lowest is 0.
pub(super) const HIGHEST_PRIORITY: i32 = -5;

/// Which default stream a null handle means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    /// One per context, in step with the other blocking streams.
    Legacy,
    /// One per thread and context.
    PerThread,
}

/// A stream as a program names it.
#[derive(Clone, Copy, Debug)]
pub struct StreamName {
    /// The handle: null, one of the two reserved ones, or a stream's own.
    pub handle: u64,
    /// What null means to the function that was called.
    pub default: DefaultStream,
    /// The calling thread.
    pub thread: u64,
}

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) context: ContextId,
    /// In step with the legacy stream.
    pub(super) blocking: bool,
    pub(super) priority: i32,
    pub(super) capture: Option<CaptureId>,
    /// When everything submitted is complete.
    pub(super) busy_until: u64,
    /// Counts what was submitted.
    pub(super) position: u64,
    /// Up to which position it comes after other streams.
    pub(super) seen: BTreeMap<StreamId, u64>,
}

impl Stream {
    pub(super) fn new(context: ContextId, blocking: bool, priority: i32) -> Self {
        Self { context, blocking, priority, capture: None, busy_until: 0, position: 0, seen: BTreeMap::new() }
    }
}

impl Machine {
    pub(super) fn stream_ref(&self, stream: StreamId) -> Result<&Stream> {
        self.streams.get(&stream).ok_or(Status::INVALID_HANDLE)
    }

    pub(super) fn stream_mut(&mut self, stream: StreamId) -> Result<&mut Stream> {
        self.streams.get_mut(&stream).ok_or(Status::INVALID_HANDLE)
    }

    /// The stream that a program means.
    pub fn stream(&mut self, context: ContextId, name: StreamName) -> Result<StreamId> {
        match (name.handle, name.default) {
            (0, DefaultStream::Legacy) | (1, _) => Ok(self.context(context)?.legacy),
            (0, DefaultStream::PerThread) | (2, _) => self.per_thread_stream(context, name.thread),
            (handle, _) => self.stream_ref(StreamId(handle)).map(|_| StreamId(handle)),
        }
    }

    /// The stream that a program means, which must be one of the current context.
    pub fn own_stream(&mut self, context: ContextId, name: StreamName) -> Result<StreamId> {
        let stream = self.stream(context, name)?;
        if self.stream_ref(stream)?.context == context { Ok(stream) } else { Err(Status::INVALID_HANDLE) }
    }

    fn per_thread_stream(&mut self, context: ContextId, thread: u64) -> Result<StreamId> {
        if let Some(stream) = self.context(context)?.per_thread.get(&thread) {
            return Ok(*stream);
        }
        let stream: StreamId = self.identities.fresh();
        self.streams.insert(stream, Stream::new(context, true, 0));
        self.context_mut(context)?.per_thread.insert(thread, stream);
        Ok(stream)
    }

    /// `cuStreamCreateWithPriority`.
    pub fn create_stream(&mut self, context: ContextId, flags: u32, priority: i32) -> Result<StreamId> {
        const NON_BLOCKING: u32 = 1;
        self.context(context)?;
        if flags & !NON_BLOCKING != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let stream: StreamId = self.identities.fresh();
        let made = Stream::new(context, flags & NON_BLOCKING == 0, priority.clamp(HIGHEST_PRIORITY, 0));
        self.streams.insert(stream, made);
        Ok(stream)
    }

    /// `cuStreamDestroy`: what was submitted still completes. Default streams cannot be destroyed.
    pub fn destroy_stream(&mut self, stream: StreamId) -> Result<()> {
        let gone = self.stream_ref(stream)?;
        if self.context(gone.context)?.legacy == stream || gone.capture.is_some() {
            return Err(Status::INVALID_HANDLE);
        }
        self.streams.remove(&stream);
        Ok(())
    }

    /// Context, flags and priority of a stream.
    pub fn stream_properties(&self, stream: StreamId) -> Result<(ContextId, u32, i32)> {
        let found = self.stream_ref(stream)?;
        Ok((found.context, u32::from(!found.blocking), found.priority))
    }

    /// Puts work on a stream. The legacy stream waits for all blocking streams of its context, and they for
    /// it.
    pub fn enqueue(&mut self, stream: StreamId, nanoseconds: u64) -> Result<()> {
        let found = self.stream_ref(stream)?;
        let context = found.context;
        let legacy = self.context(context)?.legacy;
        let mut start = self.now.max(found.busy_until);
        if stream == legacy {
            let blocking = self.streams.values().filter(|other| other.context == context && other.blocking);
            start = blocking.map(|other| other.busy_until).fold(start, u64::max);
        } else if found.blocking {
            start = start.max(self.stream_ref(legacy)?.busy_until);
        }
        let stream = self.stream_mut(stream)?;
        stream.busy_until = start.saturating_add(nanoseconds);
        stream.position += 1;
        Ok(())
    }

    /// `cuStreamWaitEvent`.
    pub fn wait_event(&mut self, stream: StreamId, event: EventId) -> Result<()> {
        let Some(record) = self.event_ref(event)?.record.clone() else {
            return self.stream_ref(stream).map(|_| ());
        };
        if let Some(capture) = record.capture {
            return self.join_capture(stream, capture);
        }
        let waiting = self.stream_mut(stream)?;
        waiting.busy_until = waiting.busy_until.max(record.at);
        for (other, position) in record.seen.iter().map(|(other, position)| (*other, *position)) {
            let known = waiting.seen.entry(other).or_default();
            *known = position.max(*known);
        }
        Ok(())
    }

    /// `cuStreamSynchronize`.
    pub fn synchronize_stream(&mut self, stream: StreamId) -> Result<()> {
        self.wait(self.stream_ref(stream)?.busy_until);
        Ok(())
    }

    /// What a synchronous copy does: waits for its stream, without being a call that makes pools give memory
    /// back.
    pub fn finish(&mut self, stream: StreamId) -> Result<()> {
        self.advance_to(self.stream_ref(stream)?.busy_until);
        Ok(())
    }

    /// `cuStreamQuery`.
    pub fn query_stream(&mut self, stream: StreamId) -> Result<()> {
        self.query(self.stream_ref(stream)?.busy_until)
    }

    /// `cuCtxSynchronize`.
    pub fn synchronize_context(&mut self, context: ContextId) -> Result<()> {
        self.context(context)?;
        let own = self.streams.values().filter(|stream| stream.context == context);
        self.wait(own.map(|stream| stream.busy_until).max().unwrap_or(0));
        Ok(())
    }

    /// When all streams of a card have done their work.
    pub(super) fn device_busy_until(&self, device: usize) -> u64 {
        let on_device = |stream: &&Stream| {
            self.contexts.get(&stream.context).is_some_and(|context| context.device == device)
        };
        self.streams.values().filter(on_device).map(|stream| stream.busy_until).max().unwrap_or(0)
    }

    /// Moves the clock forward to a time; a time that has passed changes nothing.
    pub fn advance_to(&mut self, time: u64) {
        if time > self.now {
            self.now = time;
            self.settle_deferred();
            self.settle_pools(false);
        }
    }

    /// What a call does that waits: the clock jumps, and pools give back what they hold beyond their
    /// thresholds.
    pub(super) fn wait(&mut self, until: u64) {
        self.advance_to(until);
        self.settle_pools(true);
    }

    pub(super) fn query(&mut self, busy_until: u64) -> Result<()> {
        if busy_until <= self.now {
            return Ok(());
        }
        self.advance_to(self.now + QUERY);
        Err(Status::NOT_READY)
    }
}
