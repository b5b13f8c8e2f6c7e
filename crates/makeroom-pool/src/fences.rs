//! Fences: the GPU's progress on each stream, tracked with events.
//!
//! A fence is the sequence number of an event on a stream. Events of a stream complete in order, so the latest
//! completed one covers all before it. Events are recycled, because creating one costs more than recording it.
//!
//! The program may be capturing a graph. In the strictest mode, querying an event on any thread breaks a capture, so
//! every call holds a guard for relaxed mode. A stream that is itself being captured gets no fence.
//!
//! Waits poll with a deadline: the stream may itself wait for something that the waiting thread does next
//! (`cuStreamWaitValue`), and the driver's own wait would then never return.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use makeroom_core::{FastMap, StreamId};
use makeroom_cuda::{CaptureModeGuard, Context, Driver, Event, EventKind, Result, Stream};
use makeroom_place::pool::{Fence, Refused};

/// Polls before the thread sleeps in between, and the length of a sleep.
const EAGER: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);

/// Waits for an event until a deadline. Returns whether it completed.
pub(crate) fn wait_until(event: &Event, end: Instant) -> Result<bool> {
    for asked in 0_u32.. {
        if event.is_done()? {
            return Ok(true);
        }
        if Instant::now() >= end {
            break;
        }
        if asked < EAGER {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
    Ok(false)
}

/// The events of one stream not known to have completed, oldest first.
///
/// `passed < waiting[0] < waiting[1] < … ≤ last`
#[derive(Debug, Default)]
struct Timeline {
    waiting: VecDeque<(Fence, Event)>,
    passed: Fence,
    last: Fence,
}

/// The events of all streams.
#[derive(Debug)]
pub(crate) struct Fences {
    driver: &'static Driver,
    streams: FastMap<u64, Timeline>,
    spare: Vec<Event>,
}

impl Fences {
    pub(crate) fn new(driver: &'static Driver) -> Self {
        Self { driver, streams: FastMap::default(), spare: Vec::new() }
    }

    /// Records a fence after the stream's current work.
    pub(crate) fn fence(
        &mut self,
        context: &Context,
        stream: StreamId,
    ) -> std::result::Result<Fence, Refused> {
        self.record(context, stream).ok().flatten().ok_or(Refused)
    }

    fn record(&mut self, context: &Context, id: StreamId) -> Result<Option<Fence>> {
        let _entered = context.enter()?;
        let _relaxed = CaptureModeGuard::relaxed(self.driver)?;
        // SAFETY: a stream on which memory is freed stays alive until it is retired, after which no fence is recorded.
        let stream = unsafe { Stream::borrow(self.driver, id.0) };
        if stream.is_capturing()? {
            return Ok(None);
        }
        let event = match self.spare.pop() {
            Some(event) => event,
            None => Event::create(self.driver, EventKind::NoTiming)?,
        };
        if let Err(error) = event.record(&stream) {
            self.spare.push(event);
            return Err(error);
        }
        let timeline = self.streams.entry(id.0).or_default();
        timeline.last = Fence(timeline.last.0 + 1);
        timeline.waiting.push_back((timeline.last, event));
        Ok(Some(timeline.last))
    }

    /// The latest fence of a stream that the GPU has passed.
    pub(crate) fn passed(&mut self, context: &Context, stream: StreamId) -> Fence {
        let Some(timeline) = self.streams.get_mut(&stream.0) else { return Fence::BEGINNING };
        if timeline.waiting.is_empty() {
            return timeline.passed;
        }
        let Ok(_entered) = context.enter() else { return timeline.passed };
        let Ok(_relaxed) = CaptureModeGuard::relaxed(self.driver) else { return timeline.passed };
        while let Some((fence, event)) = timeline.waiting.front() {
            if !matches!(event.is_done(), Ok(true)) {
                break;
            }
            timeline.passed = *fence;
            if let Some((_, event)) = timeline.waiting.pop_front() {
                self.spare.push(event);
            }
        }
        timeline.passed
    }

    /// Waits until the GPU has passed a fence, with a timeout.
    pub(crate) fn wait(
        &mut self,
        context: &Context,
        stream: StreamId,
        fence: Fence,
        longest: Duration,
    ) -> std::result::Result<(), Refused> {
        let end = Instant::now() + longest;
        let Some(timeline) = self.streams.get_mut(&stream.0) else {
            return if fence == Fence::BEGINNING { Ok(()) } else { Err(Refused) };
        };
        let _entered = context.enter().map_err(|_| Refused)?;
        let _relaxed = CaptureModeGuard::relaxed(self.driver).map_err(|_| Refused)?;
        while timeline.passed < fence {
            let Some((earliest, event)) = timeline.waiting.front() else { return Err(Refused) };
            if !wait_until(event, end).map_err(|_| Refused)? {
                return Err(Refused);
            }
            timeline.passed = *earliest;
            if let Some((_, event)) = timeline.waiting.pop_front() {
                self.spare.push(event);
            }
        }
        Ok(())
    }
}
