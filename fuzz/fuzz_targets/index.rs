//! Any bytes as an index file: no panic that leaves the reader, no hang; what can be read can be written and read again.
//!
//! The Parquet crate may panic on hostile files; the reader turns that into an error, so run it with the panics caught:
//!
//! ```text
//! cargo +nightly fuzz run index -- -max_len=20000 -rss_limit_mb=1024 -timeout=5
//! ```
#![no_main]

use std::sync::Once;

use libfuzzer_sys::fuzz_target;
use makeroom_index::{IndexFile, decode, encode};

fuzz_target!(|bytes: &[u8]| {
    static QUIET: Once = Once::new();
    // libFuzzer's hook ends the process before the reader can catch the panic.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    if let Ok(file) = IndexFile::from_bytes(bytes.to_vec()) {
        let _ = file.columns(&["source", "job_name", "ran_out", "peak_bytes"]);
    }
    if let Ok(entries) = decode(bytes.to_vec()) {
        let written = encode(&entries).and_then(decode);
        assert!(written.is_ok_and(|written| written.len() <= entries.len()), "what was read can be written");
    }
});
