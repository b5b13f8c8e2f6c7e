//! Events.

use makeroom_ordered::OrderedMap;

use super::{CaptureId, ContextId, EventId, Machine, StreamId};
use crate::status::{Result, Status};

/// An event.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) context: ContextId,
    flags: EventFlags,
    pub(super) record: Option<Record>,
}

/// The state of an event when it was recorded.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// When all work before it is complete.
    pub(super) at: u64,
    /// The positions in streams that it comes after, including its own stream.
    pub(super) seen: OrderedMap<StreamId, u64>,
    /// The capture in which it was recorded, if any.
    pub(super) capture: Option<CaptureId>,
}

/// Creation flags of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFlags(pub u32);

impl EventFlags {
    const BLOCKING: u32 = 1;
    const UNTIMED: u32 = 2;
    const INTERPROCESS: u32 = 4;
}

impl Machine {
    pub(super) fn event_ref(&self, event: EventId) -> Result<&Event> {
        self.events.get(&event).ok_or(Status::INVALID_HANDLE)
    }

    /// `cuEventCreate`.
    pub fn create_event(&mut self, context: ContextId, flags: EventFlags) -> Result<EventId> {
        self.context(context)?;
        let known = EventFlags::BLOCKING | EventFlags::UNTIMED | EventFlags::INTERPROCESS;
        let shared_and_timed =
            flags.0 & (EventFlags::INTERPROCESS | EventFlags::UNTIMED) == EventFlags::INTERPROCESS;
        if flags.0 & !known != 0 || shared_and_timed {
            return Err(Status::INVALID_VALUE);
        }
        let event: EventId = self.identities.fresh();
        self.events.insert(event, Event { context, flags, record: None });
        Ok(event)
    }

    /// `cuEventDestroy`.
    pub fn destroy_event(&mut self, event: EventId) -> Result<()> {
        self.events.remove(&event).map(|_| ()).ok_or(Status::INVALID_HANDLE)
    }

    /// `cuEventRecord`: event and stream must belong to the same context.
    pub fn record_event(&mut self, event: EventId, stream: StreamId) -> Result<()> {
        let found = self.stream_ref(stream)?;
        let (context, capture) = (found.context, found.capture);
        if self.event_ref(event)?.context != context {
            return Err(Status::INVALID_HANDLE);
        }
        if capture.is_none() {
            self.enqueue(stream, 0)?;
        }
        let found = self.stream_ref(stream)?;
        let mut seen = found.seen.clone();
        seen.insert(stream, found.position);
        let record = Record { at: found.busy_until, seen, capture };
        self.events.get_mut(&event).ok_or(Status::INVALID_HANDLE)?.record = Some(record);
        Ok(())
    }

    /// `cuCtxRecordEvent`: the event comes after the work of all streams of its context. Invalidates the captures of these
    /// streams, and fails if there are any.
    pub fn record_context_event(&mut self, event: EventId, context: ContextId) -> Result<()> {
        self.context(context)?;
        if self.event_ref(event)?.context != context {
            return Err(Status::INVALID_HANDLE);
        }
        self.refuse_captured_context(context)?;
        let own = || self.streams.iter().filter(|(_, stream)| stream.context == context);
        let at = own().map(|(_, stream)| stream.busy_until).max().unwrap_or(0);
        let seen = own().map(|(id, stream)| (*id, stream.position)).collect();
        let record = Record { at, seen, capture: None };
        self.events.get_mut(&event).ok_or(Status::INVALID_HANDLE)?.record = Some(record);
        Ok(())
    }

    /// Returns an error for an event that was recorded in a capture, and invalidates the capture.
    pub fn refuse_captured_event(&mut self, event: EventId) -> Result<()> {
        let Some(capture) = self.event_ref(event)?.record.as_ref().and_then(|record| record.capture) else {
            return Ok(());
        };
        self.invalidate(capture);
        Err(Status::CAPTURED_EVENT)
    }

    /// When an event completes; one that was never recorded is complete.
    fn completion(&mut self, event: EventId) -> Result<u64> {
        self.refuse_captured_event(event)?;
        Ok(self.event_ref(event)?.record.as_ref().map_or(0, |record| record.at))
    }

    /// `cuEventQuery`.
    pub fn query_event(&mut self, event: EventId) -> Result<()> {
        let at = self.completion(event)?;
        self.query(at)
    }

    /// `cuEventSynchronize`.
    pub fn synchronize_event(&mut self, event: EventId) -> Result<()> {
        let at = self.completion(event)?;
        self.wait(at);
        Ok(())
    }

    /// `cuEventElapsedTime`, in milliseconds.
    pub fn elapsed(&mut self, start: EventId, end: EventId) -> Result<f32> {
        let mut times = [0; 2];
        for (time, event) in times.iter_mut().zip([start, end]) {
            let found = self.event_ref(event)?;
            if found.flags.0 & EventFlags::UNTIMED != 0 || found.record.is_none() {
                return Err(Status::INVALID_HANDLE);
            }
            *time = self.completion(event)?;
        }
        if times.iter().any(|time| *time > self.now) {
            return Err(Status::NOT_READY);
        }
        Ok(((times[1] as f64 - times[0] as f64) / 1e6) as f32)
    }
}
