//! Logs of different RMM versions.

use crate::support::pickler::read_trace;
use makeroom_core::{Action, Address, Bytes, StreamId, Trace, TraceKind};
use makeroom_trace::Error;

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

fn read(lines: &str) -> Result<Trace, Error> {
    read_trace(format!("{HEADER}{lines}").as_bytes())
}

#[test]
fn a_log_becomes_events() {
    let trace = read(
        "3412,10:14:01.000123,allocate,0x7f2a00000000,1048576,0x2\n\
         3412,10:14:01.000456,free,0x7f2a00000000,1048576,0x2\n\
         3413,10:14:02.017000,allocate failure,(nil),8589934592,0x0\n",
    )
    .expect("a log");
    assert_eq!(trace.kind, TraceKind::RmmLog);
    assert_eq!(trace.notes, [""; 0]);
    let events: Vec<_> = trace.devices[0].events.iter().collect();
    let actions: Vec<_> = events.iter().map(|event| event.action).collect();
    assert_eq!(actions, [Action::Alloc, Action::FreeRequested, Action::FreeCompleted, Action::OutOfMemory]);
    assert_eq!(events[0].address, Address(0x7f2a_0000_0000));
    assert_eq!((events[0].size, events[0].stream), (Bytes::mib(1), StreamId(2)));
    assert_eq!(events[0].time_us, ((10 * 60 + 14) * 60 + 1) * 1_000_000 + 123);
    assert_eq!((events[3].size, events[3].device_free()), (Bytes::gib(8), None));
}

#[test]
fn times_go_on_after_midnight_and_have_older_forms() {
    let trace = read(
        "1,23:59:59:999999,allocate,0x1,1,0x0\r\n\
         1,00:00:00.5,allocate,0x2,1,0x0\r\n\
         2,00:00:00.4,allocate,0x3,1,0\r\n\
         1,00:00:01,allocate,0x4,1,0x0\r\n\
         \r\n",
    )
    .expect("a log");
    let day = 24 * 60 * 60 * 1_000_000;
    let times: Vec<_> = trace.devices[0].events.iter().map(|event| event.time_us).collect();
    assert_eq!(times, [day - 1, day + 500_000, day + 400_000, day + 1_000_000]);
}

#[test]
fn a_torn_last_line_is_a_note() {
    let trace = read("1,10:00:00.0,allocate,0x1,1,0x0\n1,10:00:00.1,alloc").expect("a log");
    assert_eq!(trace.event_count(), 1);
    assert_eq!(trace.notes, ["line 3 is truncated and was skipped"]);
    // A complete last line without a line terminator is an event.
    assert_eq!(read("1,10:00:00.0,allocate,0x1,1,0x0").expect("a log").event_count(), 1);
    assert_eq!(read("").expect("a log").event_count(), 0);
}

#[test]
fn damage_is_named_by_line() {
    for (line, message) in [
        ("1", "a time like 10:14:01.000123"),
        ("1,25:00:00.0,allocate,0x1,1,0x0", "a time like 10:14:01.000123"),
        ("1,10:00:00.0,grow,0x1,1,0x0", "`allocate`, `allocate failure` or `free`"),
        ("1,10:00:00.0,free,pointer,1,0x0", "a pointer like 0x7f2a00000000"),
        ("1,10:00:00.0,free,0x1,-1,0x0", "a size in bytes"),
        ("1,10:00:00.0,free,0x1,1,+1", "a stream like 0x2"),
        ("1,10:00:00.0,free,0x1,1,0x0,7", "six fields"),
    ] {
        let error = read(&format!("1,10:00:00.0,allocate,0x1,1,0x0\n{line}\n")).expect_err("damaged");
        assert_eq!(error.to_string(), format!("line 3 (byte 71): expected {message}, found `{line}`"));
        assert!(error.hint().is_some());
    }
    let long = read(&format!("{}\n", "x".repeat(5000))).expect_err("too long");
    assert!(
        long.to_string().starts_with("line 2 (byte 39): expected a line of at most 4096 bytes"),
        "{long}"
    );
}
