//! What events stand for. The driver is a model too: an event is the stream of its last record.

use crate::mark::{Mark, Meaning};
use crate::run::{Arc, model, spawn};
use crate::sync::{AtomicU64, Ordering};

const EVENT: u64 = 5;

struct World {
    mark: Mark,
    /// The stream that the driver has recorded the event on; 0 once it is destroyed.
    driver: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { mark: Mark::new(), driver: AtomicU64::new(0) })
    }

    /// As `cuEventRecord`'s hook.
    fn record(&self, stream: u64) {
        let recording = self.mark.record();
        self.driver.store(stream, Ordering::SeqCst);
        recording.set(EVENT, Meaning { stream, context: stream, time_ns: stream });
    }

    /// As `cuEventDestroy`'s hook.
    fn destroy(&self) {
        if self.mark.is_of(EVENT) {
            self.mark.void();
        }
        self.driver.store(0, Ordering::SeqCst);
    }

    /// As `cuEventSynchronize`'s hook: the stream that is claimed to be complete, which must be the one that was waited for.
    fn wait(&self) -> Option<u64> {
        let known = self.mark.take(EVENT);
        let waited_for = self.driver.load(Ordering::SeqCst);
        let (meaning, version) = known?;
        if !self.mark.is_unchanged(version) {
            return None;
        }
        assert_eq!((meaning.stream, meaning.context, meaning.time_ns), (waited_for, waited_for, waited_for));
        Some(meaning.stream)
    }
}

/// Two threads record an event at once, and a third waits for it.
#[test]
fn a_wait_claims_only_the_record_that_it_waited_for() {
    model(|| {
        let world = World::new();
        let recorders = [1, 2].map(|stream| {
            let world = Arc::clone(&world);
            spawn(move || world.record(stream))
        });
        world.wait();
        for recorder in recorders {
            recorder.join().unwrap();
        }
        world.wait();
    });
}

/// A thread records an event again and again while another waits.
#[test]
fn a_second_record_takes_the_place_of_the_first() {
    model(|| {
        let world = World::new();
        let recorder = {
            let world = Arc::clone(&world);
            spawn(move || {
                world.record(1);
                world.record(2);
            })
        };
        world.wait();
        world.wait();
        recorder.join().unwrap();
        assert_ne!(world.wait(), Some(1));
    });
}

/// Without another thread in between, the record is known.
#[test]
fn a_record_before_the_wait_is_known() {
    model(|| {
        let world = World::new();
        let recorder = {
            let world = Arc::clone(&world);
            spawn(move || world.record(1))
        };
        recorder.join().unwrap();
        assert_eq!(world.wait(), Some(1));
        assert_eq!(world.wait(), None);
    });
}

/// An event that was recorded before is destroyed while another thread waits for it.
#[test]
fn a_destroyed_event_stands_for_nothing() {
    model(|| {
        let world = World::new();
        world.record(1);
        let other = {
            let world = Arc::clone(&world);
            spawn(move || world.destroy())
        };
        world.wait();
        other.join().unwrap();
        assert_eq!(world.wait(), None);
    });
}
