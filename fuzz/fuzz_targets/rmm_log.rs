//! Any bytes behind the header of an RMM log: no panic, no hang, at most two events a line.
//!
//! ```text
//! cargo +nightly fuzz run rmm_log -- -max_len=4096 -timeout=5
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use makeroom_trace::Input;

fuzz_target!(|bytes: &[u8]| {
    let log = [b"Thread,Time,Action,Pointer,Size,Stream\n", bytes].concat();
    if let Ok(Input::Trace(trace)) = makeroom_trace::read(&log[..]) {
        let lines = bytes.split(|&byte| byte == b'\n').count();
        assert!(trace.event_count() <= 2 * lines);
    }
});
