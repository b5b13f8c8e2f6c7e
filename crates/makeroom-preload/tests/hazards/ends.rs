//! Ways in which programs exit.

use std::os::unix::process::ExitStatusExt as _;

use makeroom_trace::room::{EndReason, EventKind};

use crate::support::everywhere;

#[test]
fn ends_without_destructors_leave_a_whole_recording() {
    let whole = [
        ("_exit", EndReason::Exit, 11, 20),
        ("_Exit", EndReason::Exit, 12, 20),
        ("quick_exit", EndReason::Exit, 13, 21),
        ("abort-soon", EndReason::Signal, 6, 20),
        ("assert-soon", EndReason::Signal, 6, 20),
        ("raise-soon", EndReason::Signal, 15, 20),
        ("kill-soon", EndReason::Signal, 2, 20),
        ("handled", EndReason::Exit, 14, 21),
    ];
    for (way, reason, status, allocations) in whole {
        for program in everywhere("exits.c") {
            let recording = program.argument(way).check_one();
            recording.assert_complete();
            recording.assert_balanced();
            let end = recording.end.unwrap();
            assert_eq!((end.reason, end.status), (reason, status), "{way}");
            assert_eq!(recording.count(EventKind::DeviceAlloc), allocations, "{way}");
        }
    }
}

#[test]
fn signals_from_outside_leave_a_readable_recording() {
    for way in ["kill", "terminate", "segfault"] {
        for program in everywhere("exits.c") {
            let program = program.argument(way);
            let recording = program.check_one();
            assert!(program.recorded().status.signal().is_some());
            assert!(recording.end.is_none());
            recording.assert_balanced();
            assert_eq!(recording.count(EventKind::DeviceAlloc), 20);
        }
    }
}
