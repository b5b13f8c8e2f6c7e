//! Any bytes as a `.room` file, as they are and as the payload of a sound frame: no panic, no hang, memory in
//! proportion to the input, and what was read is written back to the same records.
//!
//! ```text
//! mkdir -p fuzz/corpus/room
//! cp crates/makeroom-trace/tests/golden/*.room fuzz/corpus/room/
//! cargo +nightly fuzz run room -- -max_len=20000 -rss_limit_mb=512 -timeout=5
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use makeroom_trace::Input;
use makeroom_trace::room::{Encoder, Frame, Header, Reader, Record, ThreadNumber, beginning, seal};

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // A fuzzer does not find checksums: give it one.
    let mut sealed = beginning(&Header::default());
    if seal(bytes, &mut sealed) {
        check(&sealed);
    }
});

fn check(bytes: &[u8]) {
    if let Ok(Input::Trace(trace)) = makeroom_trace::read(bytes) {
        // An event takes three bytes and becomes at most two; an unmapped range ends what was mapped before.
        assert!(trace.event_count() <= bytes.len());
    }
    let Ok(mut reader) = Reader::new(bytes) else { return };
    while let Ok(Some(frame)) = reader.next_frame() {
        let Frame::Records(records) = frame else { continue };
        let (thread, records) = (records.thread(), records.map_while(Result::ok).collect::<Vec<_>>());
        assert_eq!(written_and_read(thread, &records), records);
    }
}

fn written_and_read(thread: ThreadNumber, records: &[Record]) -> Vec<Record> {
    let mut encoder = Encoder::new(thread, Vec::new());
    for record in records {
        encoder.record(record);
    }
    let mut file = beginning(&Header::default());
    assert!(seal(encoder.bytes(), &mut file));
    let Ok(mut reader) = Reader::new(&file[..]) else { unreachable!("it was just written") };
    match reader.next_frame() {
        Ok(Some(Frame::Records(again))) => again.map_while(Result::ok).collect(),
        other => unreachable!("it was just written: {other:?}"),
    }
}
