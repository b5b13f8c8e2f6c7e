//! How far the GPU has come, told by events.
//!
//! A mark is the number of an event on a stream; events of a stream happen in order, so the latest that happened
//! tells of all before it. Events are used again: making one costs more than recording it.
//!
//! Calls here may meet a program that captures a graph. Asking an event on any thread breaks a capture in the
//! strictest mode, so every call stands behind a guard; a stream that is itself captured gets no mark.
//!
//! Waiting is asking again and again, until a time: the stream may itself wait for something that the waiting thread
//! does next (`cuStreamWaitValue`), and the driver's own wait would then never end.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use makeroom_core::{FastMap, StreamId};
use makeroom_cuda::{CaptureModeGuard, Context, Driver, Event, EventKind, Result, Stream};
use makeroom_place::pool::{Mark, Refused};

/// How often the GPU is asked before the thread sleeps in between, and for how long it sleeps.
const EAGER: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);

/// Waits for an event, at most until a time; whether it has happened.
fn wait_until(event: &Event, end: Instant) -> Result<bool> {
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

/// The events of one stream that are not known to have happened, oldest first.
///
/// `passed < waiting[0] < waiting[1] < … ≤ last`
#[derive(Debug, Default)]
struct Timeline {
    waiting: VecDeque<(Mark, Event)>,
    passed: Mark,
    last: Mark,
}

/// All streams' events.
#[derive(Debug)]
pub(crate) struct Marks {
    driver: &'static Driver,
    streams: FastMap<u64, Timeline>,
    spare: Vec<Event>,
}

impl Marks {
    pub(crate) fn new(driver: &'static Driver) -> Self {
        Self { driver, streams: FastMap::default(), spare: Vec::new() }
    }

    /// Puts a mark behind what a stream has to do now.
    pub(crate) fn mark(&mut self, context: &Context, stream: StreamId) -> std::result::Result<Mark, Refused> {
        self.record(context, stream).ok().flatten().ok_or(Refused)
    }

    fn record(&mut self, context: &Context, id: StreamId) -> Result<Option<Mark>> {
        let _entered = context.enter()?;
        let _relaxed = CaptureModeGuard::relaxed(self.driver)?;
        // SAFETY: whoever frees on a stream keeps it until it is retired, which asks for no mark afterwards.
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
        timeline.last = Mark(timeline.last.0 + 1);
        timeline.waiting.push_back((timeline.last, event));
        Ok(Some(timeline.last))
    }

    /// The latest mark of a stream that the GPU has passed.
    pub(crate) fn passed(&mut self, context: &Context, stream: StreamId) -> Mark {
        let Some(timeline) = self.streams.get_mut(&stream.0) else { return Mark::BEGINNING };
        if timeline.waiting.is_empty() {
            return timeline.passed;
        }
        let Ok(_entered) = context.enter() else { return timeline.passed };
        let Ok(_relaxed) = CaptureModeGuard::relaxed(self.driver) else { return timeline.passed };
        while let Some((mark, event)) = timeline.waiting.front() {
            if !matches!(event.is_done(), Ok(true)) {
                break;
            }
            timeline.passed = *mark;
            if let Some((_, event)) = timeline.waiting.pop_front() {
                self.spare.push(event);
            }
        }
        timeline.passed
    }

    /// Waits until the GPU has passed a mark, for so long at most.
    pub(crate) fn wait(
        &mut self,
        context: &Context,
        stream: StreamId,
        mark: Mark,
        longest: Duration,
    ) -> std::result::Result<(), Refused> {
        let end = Instant::now() + longest;
        let Some(timeline) = self.streams.get_mut(&stream.0) else {
            return if mark == Mark::BEGINNING { Ok(()) } else { Err(Refused) };
        };
        let _entered = context.enter().map_err(|_| Refused)?;
        let _relaxed = CaptureModeGuard::relaxed(self.driver).map_err(|_| Refused)?;
        while timeline.passed < mark {
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
