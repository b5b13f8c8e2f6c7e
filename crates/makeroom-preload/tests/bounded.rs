//! Recordings of a bounded size, and recordings that are kept only if their process failed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;

use makeroom_trace::room::EventKind;

use crate::support::{Program, Recording};

/// Bytes of the bound, and of what comes on top: the live set, the definitions and the events of 200 ms, after which no
/// event of another thread is late. The program records at most 4,000 events of 7 bytes in 50 ms.
const RING: u64 = 256 << 10;
const SLACK: u64 = 160 << 10;

fn ring(end: &str) -> Program {
    Program::new("ring.c").argument(end)
}

/// Live bytes at the end, by address.
fn live(recording: &Recording) -> BTreeMap<u64, u64> {
    let mut live = BTreeMap::new();
    for (_, event) in &recording.events {
        match event.kind {
            EventKind::DeviceAlloc => {
                live.insert(event.address.0, event.size.get());
            }
            EventKind::DeviceFree => {
                live.remove(&event.address.0);
            }
            _ => {}
        }
    }
    live
}

#[test]
fn a_bounded_recording_has_the_live_memory_of_the_full_one() {
    has_the_live_memory_of_the_full_one("exit");
}

#[test]
fn a_bounded_recording_of_a_killed_process_has_it_too() {
    has_the_live_memory_of_the_full_one("kill");
}

fn has_the_live_memory_of_the_full_one(end: &str) {
    let recorded = |program: Program| {
        program.recorded();
        program.recordings().remove(0)
    };
    // Both sleep most of the time.
    let (full, bounded) = std::thread::scope(|scope| {
        let full = scope.spawn(|| recorded(ring(end)));
        let bounded = recorded(ring(end).variable("MAKEROOM_RING", &RING.to_string()));
        (full.join().unwrap(), bounded)
    });
    let length = |recording: &Recording| fs::metadata(&recording.path).unwrap().len();
    assert!(length(&full) > 3 * RING, "the test records too little: {}", length(&full));
    assert!(length(&bounded) < RING + SLACK, "{end}: {}", length(&bounded));
    assert_eq!(live(&bounded).values().sum::<u64>(), live(&full).values().sum::<u64>(), "{end}");
    assert_eq!(live(&bounded).len(), 100, "{end}");
    let left_out = bounded.compacted.unwrap();
    assert!(left_out.events > 10_000 && left_out.failures == 0, "{left_out:?}");
    assert!(bounded.dropped.is_empty(), "{:?}", bounded.dropped);
    for (_, event) in bounded.events.iter().filter(|(_, event)| event.kind == EventKind::DeviceAlloc) {
        assert_ne!(event.stack.0, 0);
        assert!(!bounded.stack(event).is_empty(), "its stack is defined in the new file");
    }
    assert_eq!(bounded.end.is_some(), end == "exit");
    let left: Vec<_> = fs::read_dir(bounded.path.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn only_the_recordings_of_failed_processes_are_kept() {
    std::thread::scope(|scope| {
        for (end, is_kept) in [("exit", false), ("fail", true), ("kill", true)] {
            scope.spawn(move || {
                let program = ring(end).variable("MAKEROOM_KEEP", "failed");
                program.recorded();
                assert_eq!(program.recordings().len(), usize::from(is_kept), "{end}");
            });
        }
    });
}
