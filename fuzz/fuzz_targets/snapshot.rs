//! Any bytes as a pickle: no panic, no hang, and memory in proportion to the input.
//!
//! Begin with real snapshots, so that the fuzzer need not find out what a pickle is:
//!
//! ```text
//! mkdir -p fuzz/corpus/snapshot
//! for name in seed001 graphs; do
//!   gzip -dc traces/$name.pickle.gz > fuzz/corpus/snapshot/$name
//! done
//! cargo +nightly fuzz run snapshot -- -max_len=200000 -rss_limit_mb=512 -timeout=5
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use makeroom_trace::Input;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Input::Trace(trace)) = makeroom_trace::read(bytes) {
        // Every handle in a trace leads somewhere.
        for device in &trace.devices {
            for event in device.events.iter() {
                let _ = trace.stacks.frames_of(event.stack);
            }
            assert!(device.segments.is_sorted_by_key(|segment| segment.address));
        }
        // Compressed input may hold more.
        assert!(!bytes.starts_with(b"\x80") || trace.event_count() <= bytes.len());
    }
});
