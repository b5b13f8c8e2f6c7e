//! Any bytes as an archive: no panic, no hang, and members have no more contents than deflate can expand.
//!
//! ```text
//! cargo +nightly fuzz run archive -- -max_len=20000 -rss_limit_mb=512 -timeout=5
//! ```
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut members = 0_usize;
    let _ = makeroom_trace::visit_archive(std::io::Cursor::new(bytes), &mut |name, contents| {
        assert!(!name.chars().any(char::is_control));
        let _ = std::io::copy(contents, &mut std::io::sink());
        members += 1;
        if members > bytes.len() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(members <= bytes.len());
});
