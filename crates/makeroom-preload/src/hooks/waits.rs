//! Detects which stream-ordered frees the program has synchronized with: dirty flags per stream and context, and
//! versioned slots for events (`mark`).
//!
//! A free on a stream is complete once the stream reaches it, and a program that waits for the stream knows that. The
//! recording has one event per wait, which covers the frees made before the wait began; `extra` is how long ago that
//! was. The claim is conservative:
//!
//! - A free is stamped before it is made. While any thread is inside one (`FREEING`), its order relative to a wait is
//!   unknown, so that wait covers nothing.
//! - An event stands for the stream and time of its last record (`mark`). If those are uncertain (a capture, a
//!   per-thread stream, two threads at once), it stands for nothing. Once graphs or other processes may record
//!   events, no event stands for anything.
//!
//! In a program without stream-ordered frees this costs one load per wait; in one with them, two loads if nothing was
//! freed since the last wait.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use makeroom_trace::room::EventKind;

use super::mark::{Mark, Meaning, Recording, Version};
use crate::call::{Call, Role};
use crate::clock;
use crate::driver::types::{CuResult, Handle, SUCCESS};
use crate::driver::{capture, place};
use crate::event::{Moment, record};
use crate::record::event::{RawEvent, Word as _};

/// Slots for streams and for events, indexed by hash. A collision costs a redundant wait event or a missing one.
const PLACES: usize = 256;
const PER_THREAD: u64 = 2;

/// Threads inside a stream-ordered free.
static FREEING: AtomicU32 = AtomicU32::new(0);
/// Whether anything was ever freed on a stream.
static HAS_FREED: AtomicBool = AtomicBool::new(false);
/// Whether anything was freed since the last wait for a context: one bit per context, by hash.
static IS_FREED_SINCE: AtomicU64 = AtomicU64::new(0);
/// Whether anything was freed on a stream since the last wait for it, by hash.
static IS_FREED: [AtomicBool; PLACES] = [const { AtomicBool::new(false) }; PLACES];
/// Whether events may be recorded where no hook sees it.
static ARE_EVENTS_UNKNOWN: AtomicBool = AtomicBool::new(false);
static MARKS: [Mark; PLACES] = [const { Mark::new() }; PLACES];

/// A free in progress. It ends on drop, however the call is left.
pub(crate) struct Freeing(());

/// Begins a stream-ordered free. Call it before the free is stamped.
#[inline]
pub(crate) fn begin_free() -> Freeing {
    FREEING.fetch_add(1, Ordering::SeqCst);
    before_the_clock();
    Freeing(())
}

impl Freeing {
    /// Ends the free after the driver has accepted it.
    #[inline]
    pub(crate) fn end(self, stream: Handle) {
        drop(self);
        let place = &IS_FREED[place_of(stream.word())];
        if !place.load(Ordering::Relaxed) {
            place.store(true, Ordering::Release);
        }
        if IS_FREED_SINCE.load(Ordering::Relaxed) != u64::MAX {
            IS_FREED_SINCE.store(u64::MAX, Ordering::Release);
        }
        if !HAS_FREED.load(Ordering::Relaxed) {
            HAS_FREED.store(true, Ordering::Release);
        }
    }
}

impl Drop for Freeing {
    #[inline]
    fn drop(&mut self) {
        FREEING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a wait is for.
#[derive(Clone, Copy)]
pub(crate) enum Awaited {
    /// A stream.
    Stream(Handle),
    /// All streams of a context; null for the current one.
    Context(Handle),
    /// The last record of an event.
    Event(Handle),
}

/// A wait in progress.
pub(crate) struct Wait {
    kind: EventKind,
    stream: u64,
    context: u64,
    began_ns: u64,
    /// The slot of the event waited for, and its version when the wait began.
    event: Option<(&'static Mark, Version)>,
}

impl Wait {
    /// Begins a wait. `None` if it would prove nothing.
    #[inline]
    pub(crate) fn begin(awaited: Awaited) -> Option<Self> {
        if !HAS_FREED.load(Ordering::Relaxed) {
            return None;
        }
        match awaited {
            Awaited::Stream(stream) => Self::of_stream(stream.word()),
            Awaited::Context(context) => Self::of_context(context.word()),
            Awaited::Event(event) => Self::of_event(event.word()),
        }
    }

    fn of_stream(stream: u64) -> Option<Self> {
        // Cleared before the clock is read: a free that comes in between sets it again.
        if !IS_FREED[place_of(stream)].load(Ordering::Relaxed) {
            return None;
        }
        IS_FREED[place_of(stream)].store(false, Ordering::SeqCst);
        let context = place::current().context;
        Self { kind: EventKind::StreamWait, stream, context, began_ns: 0, event: None }.begun_now()
    }

    fn of_context(context: u64) -> Option<Self> {
        let context = if context == 0 { place::current().context } else { context };
        if IS_FREED_SINCE.load(Ordering::Relaxed) & bit_of(context) == 0 {
            return None;
        }
        IS_FREED_SINCE.fetch_and(!bit_of(context), Ordering::SeqCst);
        Self { kind: EventKind::ContextWait, stream: 0, context, began_ns: 0, event: None }.begun_now()
    }

    fn of_event(event: u64) -> Option<Self> {
        let mark = &MARKS[place_of(event)];
        if !mark.is_of(event) || ARE_EVENTS_UNKNOWN.load(Ordering::Relaxed) {
            return None;
        }
        let (meaning, version) = mark.take(event)?;
        Some(Self {
            kind: EventKind::StreamWait,
            stream: meaning.stream,
            context: meaning.context,
            began_ns: meaning.time_ns,
            event: Some((mark, version)),
        })
    }

    fn begun_now(self) -> Option<Self> {
        let now = now();
        if now.is_none() {
            self.forget();
        }
        Some(Self { began_ns: now?, ..self })
    }

    /// Ends the wait.
    pub(crate) fn end(self, result: CuResult) {
        let call = Call::new();
        // The driver may have waited for a later record of the event.
        let is_certain = self.event.is_none_or(|(mark, version)| mark.is_unchanged(version));
        if result != SUCCESS || !is_certain || call.enter() != Role::Outermost {
            self.forget();
            return;
        }
        Call::aside(|| {
            let now_ns = clock::monotonic_ns();
            let event = RawEvent::new(self.kind).on(self.stream).in_context(self.context);
            record(event.extra(now_ns.wrapping_sub(self.began_ns)), result, Moment::Before(now_ns));
        });
    }

    /// Restores the flags: the wait proved nothing.
    fn forget(&self) {
        IS_FREED[place_of(self.stream)].store(true, Ordering::Release);
        IS_FREED_SINCE.store(u64::MAX, Ordering::Release);
    }
}

/// Called before an event is recorded on a stream. Finish with [`Marking::end`].
pub(crate) fn mark(event: Handle, stream: Handle) -> Option<Marking> {
    if !HAS_FREED.load(Ordering::Relaxed) {
        return None;
    }
    let (event, stream) = (event.word(), stream.word());
    let is_freed = IS_FREED[place_of(stream)].load(Ordering::Relaxed);
    let mark = &MARKS[place_of(event)];
    if !is_freed && !mark.is_of(event) {
        return None;
    }
    let recording = mark.record();
    let is_known = is_freed && stream != PER_THREAD && !capture::is_open();
    let time_ns = if is_known { now() } else { None };
    Some(Marking { event, recording, stream, context: place::current().context, time_ns })
}

/// A record of an event in progress.
pub(crate) struct Marking {
    event: u64,
    recording: Recording<'static>,
    stream: u64,
    context: u64,
    time_ns: Option<u64>,
}

impl Marking {
    /// Publishes the record if the driver accepted it.
    pub(crate) fn end(self, result: CuResult) {
        if let Some(time_ns) = self.time_ns.filter(|_| result == SUCCESS) {
            let meaning = Meaning { stream: self.stream, context: self.context, time_ns };
            self.recording.set(self.event, meaning);
        }
    }
}

/// Called before an event is destroyed: a new event with the same handle was never recorded.
pub(crate) fn unmark(event: Handle) {
    let mark = &MARKS[place_of(event.word())];
    if mark.is_of(event.word()) {
        mark.void();
    }
}

/// Graphs or another process, which hooks do not see, may record events from now on.
pub(crate) fn distrust_events() {
    ARE_EVENTS_UNKNOWN.store(true, Ordering::Relaxed);
}

/// Called before a stream is destroyed: its frees do not belong to the next stream with its handle.
pub(crate) fn end_stream(stream: Handle) {
    if HAS_FREED.load(Ordering::Relaxed) && IS_FREED[place_of(stream.word())].load(Ordering::Relaxed) {
        let call = Call::new();
        if call.enter() == Role::Outermost {
            let event = RawEvent::new(EventKind::StreamDestroy).on(stream);
            Call::aside(|| record(event, SUCCESS, Moment::Before(clock::monotonic_ns())));
        }
    }
}

/// The current time, or `None` if a free that may be stamped before it is still in progress.
fn now() -> Option<u64> {
    before_the_clock();
    let now_ns = clock::monotonic_ns();
    fence(Ordering::SeqCst);
    (FREEING.load(Ordering::SeqCst) == 0).then_some(now_ns)
}

/// Orders this thread's writes before its clock read, for all threads. On x86-64 the sequentially consistent write
/// already does; a fence would cost each free as much as the rest of its record.
#[inline]
fn before_the_clock() {
    #[cfg(not(target_arch = "x86_64"))]
    fence(Ordering::SeqCst);
}

/// Handles are addresses, so their lowest bits carry little information.
fn place_of(handle: u64) -> usize {
    (handle ^ handle >> 4 ^ handle >> 12) as usize % PLACES
}

fn bit_of(context: u64) -> u64 {
    1 << (place_of(context) % 64)
}
