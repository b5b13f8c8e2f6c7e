//! Streams and their clock.
//!
//! Time is simulated. It advances when a test advances it, when a call waits (the clock jumps to the end of the work,
//! at no cost in real time), and by a microsecond when a query finds unfinished work, so that polling programs
//! terminate. Work is done when it is submitted; the clock only decides when it counts as complete.

use makeroom_ordered::OrderedMap;

use super::{CaptureId, ContextId, EventId, Machine, StreamId};
use crate::status::{Result, Status};

/// Simulated time of a query that finds unfinished work, in nanoseconds.
const QUERY: u64 = 1_000;
/// The highest priority; the lowest is 0.
pub(super) const HIGHEST_PRIORITY: i32 = -5;

/// Which default stream a null handle means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    /// One per context, which synchronizes with the other blocking streams.
    Legacy,
    /// One per thread and context.
    PerThread,
}

/// A stream as a program passes it.
#[derive(Clone, Copy, Debug)]
pub struct StreamName {
    /// The handle: null, one of the two reserved ones, or that of a stream.
    pub handle: u64,
    /// The meaning of null in the called function.
    pub default: DefaultStream,
    /// The calling thread.
    pub thread: u64,
}

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) context: ContextId,
    /// Whether it synchronizes with the legacy stream.
    pub(super) blocking: bool,
    pub(super) priority: i32,
    pub(super) capture: Option<CaptureId>,
    /// When all submitted work is complete.
    pub(super) busy_until: u64,
    /// Number of submitted operations.
    pub(super) position: u64,
    /// The positions in other streams that it comes after.
    pub(super) seen: OrderedMap<StreamId, u64>,
}

impl Stream {
    pub(super) fn new(context: ContextId, blocking: bool, priority: i32) -> Self {
        Self {
            context,
            blocking,
            priority,
            capture: None,
            busy_until: 0,
            position: 0,
            seen: OrderedMap::new(),
        }
    }
}

impl Machine {
    pub(super) fn stream_ref(&self, stream: StreamId) -> Result<&Stream> {
        self.streams.get(&stream).ok_or(Status::INVALID_HANDLE)
    }

    pub(super) fn stream_mut(&mut self, stream: StreamId) -> Result<&mut Stream> {
        self.streams.get_mut(&stream).ok_or(Status::INVALID_HANDLE)
    }

    /// The stream that a program passed.
    pub fn stream(&mut self, context: ContextId, name: StreamName) -> Result<StreamId> {
        match (name.handle, name.default) {
            (0, DefaultStream::Legacy) | (1, _) => Ok(self.context(context)?.legacy),
            (0, DefaultStream::PerThread) | (2, _) => self.per_thread_stream(context, name.thread),
            (handle, _) => self.stream_ref(StreamId(handle)).map(|_| StreamId(handle)),
        }
    }

    /// The stream that a program passed, which must belong to the current context.
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

    /// `cuStreamDestroy`: submitted work still completes. Default streams cannot be destroyed.
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

    /// Adds work to a stream. The legacy stream waits for all blocking streams of its context, and they wait for it.
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

    /// Waits for a stream as a synchronous copy does, which does not make pools release memory.
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

    /// When all streams of a GPU are idle.
    pub(super) fn device_busy_until(&self, device: usize) -> u64 {
        let on_device = |stream: &&Stream| {
            self.contexts.get(&stream.context).is_some_and(|context| context.device == device)
        };
        self.streams.values().filter(on_device).map(|stream| stream.busy_until).max().unwrap_or(0)
    }

    /// Advances the clock to a time, unless it has passed.
    pub fn advance_to(&mut self, time: u64) {
        if time > self.now {
            self.now = time;
            self.settle_deferred();
            self.settle_pools(false);
        }
    }

    /// Waits as a synchronizing call does: the clock jumps, and pools shrink to their thresholds.
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
