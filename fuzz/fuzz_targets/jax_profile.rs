//! Any bytes behind the opening of a JAX memory profile: no panic, no hang, at most a million blocks and one per sample.
//!
//! ```text
//! cargo +nightly fuzz run jax_profile -- -max_len=4096 -timeout=5
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use makeroom_trace::Input;

/// The types of values: allocations in count, space in bytes, and the texts for them.
const OPENING: &[u8] = b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04\
    \x32\x00\x32\x0ballocations\x32\x05count\x32\x05space\x32\x05bytes";

fuzz_target!(|bytes: &[u8]| {
    let profile = [OPENING, bytes].concat();
    if let Ok(Input::Trace(trace)) = makeroom_trace::read(&profile[..]) {
        let segments = trace.devices.iter().flat_map(|device| &device.segments);
        let blocks: usize = segments.map(|segment| segment.blocks.len()).sum();
        assert!(blocks <= (1 << 20) + bytes.len());
        assert_eq!(trace.event_count(), 0);
    }
});
