//! A versioned slot (like a seqlock, with a try-lock for its fields): the stream and time of a CUDA event's last
//! record.
//!
//! Threads may record, wait for and destroy the same event concurrently, and the slot must never claim more than is
//! certain. So `state` counts, from before the driver is called, the changes to the slot's events and the records in
//! progress. A change invalidates the fields, and two concurrent records leave them invalid, since only the driver
//! knows their order. A thread that waits for an event reads the slot before the wait and compares the state after
//! it: if the event was recorded or destroyed in between, the wait proves nothing.
//!
//! Invariant: the fields describe an event only while `valid_at` equals the number of changes and no record is in
//! progress.

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// One change, in `state`; the bits below count the records in progress, fewer than a million.
const CHANGE: u64 = 1 << 20;

/// The slot of one event.
pub(crate) struct Mark {
    /// Number of changes times [`CHANGE`], plus records in progress.
    state: AtomicU64,
    /// Try-lock: whether a thread is accessing the fields. Others skip them.
    is_taken: AtomicBool,
    /// The number of changes at which the fields are valid; 0 for never.
    valid_at: AtomicU64,
    event: AtomicU64,
    stream: AtomicU64,
    context: AtomicU64,
    time_ns: AtomicU64,
}

/// Where and when an event was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    pub(crate) stream: u64,
    pub(crate) context: u64,
    pub(crate) time_ns: u64,
}

/// A state of a slot with no record in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

/// A record in progress. It ends on drop, however the call is left.
pub(crate) struct Recording<'mark> {
    mark: &'mark Mark,
    /// The number of changes, including this one.
    change: u64,
    /// Whether no other record was in progress.
    is_alone: bool,
}

macro_rules! new {
    () => {
        Self {
            state: AtomicU64::new(0),
            is_taken: AtomicBool::new(false),
            valid_at: AtomicU64::new(0),
            event: AtomicU64::new(0),
            stream: AtomicU64::new(0),
            context: AtomicU64::new(0),
            time_ns: AtomicU64::new(0),
        }
    };
}

impl Mark {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        new!()
    }

    /// Loom's atomics have no const constructor.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        new!()
    }

    /// Whether this event was the last one written here. A hint: it takes no lock.
    #[inline]
    pub(crate) fn is_of(&self, event: u64) -> bool {
        self.event.load(Ordering::Relaxed) == event
    }

    /// Invalidates the slot before one of its events is destroyed.
    pub(crate) fn void(&self) {
        self.state.fetch_add(CHANGE, Ordering::AcqRel);
    }

    /// Invalidates the slot before one of its events is recorded.
    pub(crate) fn record(&self) -> Recording<'_> {
        let before = self.state.fetch_add(CHANGE + 1, Ordering::AcqRel);
        Recording { mark: self, change: before / CHANGE + 1, is_alone: before.is_multiple_of(CHANGE) }
    }

    /// Whether the slot has not changed since.
    pub(crate) fn is_unchanged(&self, since: Version) -> bool {
        self.state.load(Ordering::Acquire) == since.0
    }

    /// The event's last record, which proves something only if the slot is unchanged after the wait. Clears it: until
    /// the event is recorded again, another wait proves nothing more.
    pub(crate) fn take(&self, event: u64) -> Option<(Meaning, Version)> {
        self.with(|| {
            let state = self.state.load(Ordering::Acquire);
            let is_known = self.is_of(event)
                && state.is_multiple_of(CHANGE)
                && self.valid_at.load(Ordering::Relaxed) == state / CHANGE;
            if !is_known || state == 0 {
                return None;
            }
            self.valid_at.store(0, Ordering::Relaxed);
            let meaning = Meaning {
                stream: self.stream.load(Ordering::Relaxed),
                context: self.context.load(Ordering::Relaxed),
                time_ns: self.time_ns.load(Ordering::Relaxed),
            };
            Some((meaning, Version(state)))
        })?
    }

    /// Accesses the fields, unless another thread is doing so.
    fn with<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        if self.is_taken.swap(true, Ordering::Acquire) {
            return None;
        }
        let result = work();
        self.is_taken.store(false, Ordering::Release);
        Some(result)
    }
}

impl Recording<'_> {
    /// Fills in the slot after the driver has recorded the event.
    pub(crate) fn set(self, event: u64, meaning: Meaning) {
        let mark = self.mark;
        mark.with(|| {
            let is_last = mark.state.load(Ordering::Acquire) == self.change * CHANGE + 1;
            if self.is_alone && is_last {
                mark.event.store(event, Ordering::Relaxed);
                mark.stream.store(meaning.stream, Ordering::Relaxed);
                mark.context.store(meaning.context, Ordering::Relaxed);
                mark.time_ns.store(meaning.time_ns, Ordering::Relaxed);
                mark.valid_at.store(self.change, Ordering::Relaxed);
            }
        });
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.mark.state.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const ON_A: Meaning = Meaning { stream: 1, context: 7, time_ns: 100 };
    const ON_B: Meaning = Meaning { stream: 2, context: 7, time_ns: 200 };

    #[test]
    fn an_event_stands_for_its_last_record() {
        let mark = Mark::new();
        mark.record().set(5, ON_A);
        assert_eq!(mark.take(6), None);
        assert_eq!(mark.take(5).map(|(meaning, _)| meaning), Some(ON_A));
        assert_eq!(mark.take(5), None, "once");
        mark.record().set(5, ON_B);
        let (meaning, version) = mark.take(5).unwrap();
        assert!(meaning == ON_B && mark.is_unchanged(version));
    }

    /// One thread holds the try-lock while another records the same event and cannot write.
    #[test]
    fn a_record_that_could_not_be_written_is_not_overwritten() {
        let mark = Mark::new();
        let (first, second) = (mark.record(), mark.record());
        mark.is_taken.store(true, Ordering::Relaxed);
        second.set(5, ON_B);
        mark.is_taken.store(false, Ordering::Relaxed);
        first.set(5, ON_A);
        assert_eq!(mark.take(5), None);
    }

    /// Only the driver knows which of the two came last.
    #[test]
    fn two_records_at_once_leave_nothing_known() {
        let mark = Mark::new();
        let (first, second) = (mark.record(), mark.record());
        first.set(5, ON_A);
        second.set(5, ON_B);
        assert_eq!(mark.take(5), None);
        mark.record().set(5, ON_B);
        assert!(mark.take(5).is_some(), "the next one is known again");
    }

    #[test]
    fn a_wait_during_which_the_event_is_recorded_again_knows_nothing() {
        let mark = Mark::new();
        mark.record().set(5, ON_A);
        let (_, version) = mark.take(5).unwrap();
        // Another thread is inside the driver.
        let _recording = mark.record();
        assert!(!mark.is_unchanged(version));
    }

    #[test]
    fn an_event_that_is_being_recorded_or_destroyed_stands_for_nothing() {
        let mark = Mark::new();
        mark.record().set(5, ON_A);
        mark.void();
        assert_eq!(mark.take(5), None);
        mark.record().set(5, ON_A);
        let recording = mark.record();
        assert_eq!(mark.take(5), None);
        // A failed record: the driver may or may not have changed the event.
        drop(recording);
        assert_eq!(mark.take(5), None);
    }
}
