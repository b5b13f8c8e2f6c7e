//! Threads: many at once, one after another, and while they exit.

use std::collections::HashSet;

use makeroom_trace::room::EventKind;

use crate::support::everywhere;

#[test]
fn many_threads_at_once_and_one_after_the_other() {
    for program in everywhere("threads.c") {
        let recording = program.variable("MAKEROOM_STACKS", "none").check_one();
        let lost: u64 = recording.dropped.iter().map(|dropped| dropped.events).sum();
        let seen = recording.count(EventKind::DeviceAlloc) + recording.count(EventKind::DeviceFree);
        assert_eq!(seen as u64 + lost, 2 * (64 * 500 + 1000));
        if lost == 0 {
            recording.assert_complete();
            recording.assert_balanced();
        }
        let threads: HashSet<_> = recording.events.iter().map(|(thread, _)| *thread).collect();
        assert!(threads.len() > 64);
    }
}

#[test]
fn calls_while_a_thread_ends() {
    for program in everywhere("thread_end.c") {
        let recording = program.check_one();
        recording.assert_complete();
        recording.assert_balanced();
        assert_eq!(recording.count(EventKind::DeviceFree), 10);
    }
}
