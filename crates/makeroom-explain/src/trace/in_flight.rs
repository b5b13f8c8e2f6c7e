//! Driver calls of other threads that may have been in flight when a thread queried the device's free memory.
//!
//! The recorder queries it on the program's own threads, between their calls. So the sampling thread has no call in flight,
//! and only the calls of other threads make a sample uncertain.

use makeroom_core::{Bytes, DeviceSample, Event, Events, Taken};

/// A driver call takes no longer, unless the machine is busy.
const LONGEST_CALL_US: u64 = 1000;
/// Number of events after a sample to search. It keeps a file with many samples and events at one time linear to read.
const MOST_LATER: usize = 64;

/// The last event of a thread.
#[derive(Clone, Copy)]
struct Recent {
    thread: usize,
    time_us: u64,
    /// The memory that it released.
    released: Bytes,
}

/// A position in the events of a device.
pub(super) struct InFlight<'events> {
    events: &'events Events,
    /// The number of events so far.
    position: usize,
    /// The last events of the two most recent threads. One of them is not the sampling thread.
    recent: [Option<Recent>; 2],
}

impl<'events> InFlight<'events> {
    /// Starts before the first event.
    pub(super) fn new(events: &'events Events) -> Self {
        Self { events, position: 0, recent: [None; 2] }
    }

    /// Moves past the next event, which released this much memory.
    pub(super) fn apply(&mut self, event: &Event, released: Bytes) {
        let thread = self.events.thread(self.position);
        self.position += 1;
        if self.recent[0].is_some_and(|last| last.thread != thread) {
            self.recent[1] = self.recent[0];
        }
        self.recent[0] = Some(Recent { thread, time_us: event.time_us, released });
    }

    /// The most memory that one call in flight can have held at a sample, which comes after the events so far.
    pub(super) fn at(&self, sample: &DeviceSample, taken: &Taken) -> Bytes {
        let is_other = |thread: usize| sample.thread.is_none_or(|own| own != thread);
        let is_near = |time_us: u64| time_us.abs_diff(sample.time_us) <= LONGEST_CALL_US;
        let last = self.recent.iter().flatten().find(|last| is_other(last.thread));
        let released = last.filter(|last| is_near(last.time_us)).map_or(Bytes::ZERO, |last| last.released);
        let mut later = (self.position..)
            .take(MOST_LATER)
            .map_while(|position| Some((position, self.events.get(position)?)))
            .take_while(|(_, event)| is_near(event.time_us));
        let next = later.find(|&(position, _)| is_other(self.events.thread(position)));
        released.max(next.map_or(Bytes::ZERO, |(_, event)| taken.added_by(&event)))
    }
}
