//! Any text as an error message: an answer comes out of it, as JSON and on a terminal, whose account adds up and which
//! cannot do anything to the terminal.
//!
//! Begin with real messages, so that the fuzzer need not find out how frameworks put it:
//!
//! ```text
//! mkdir -p fuzz/corpus/error_text
//! python3 -c "import json; [open(f'fuzz/corpus/error_text/{n}', 'w').write(json.loads(line)['text'])
//!   for n, line in enumerate(open('crates/makeroom-text/tests/provoked.jsonl'))]"
//! cargo +nightly fuzz run error_text -- -max_len=20000 -rss_limit_mb=512 -timeout=5
//! ```
#![no_main]

use anstream::adapter::strip_str;
use libfuzzer_sys::fuzz_target;
use makeroom_report::{explanation_json, explanation_text, sanitize};
use makeroom_text::explain_text;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let explanation = explain_text(&String::from_utf8_lossy(bytes));
    assert!(!explanation.verdict.summary.is_empty());
    assert_eq!(explanation.verdict.cause, explanation.causes[0].cause);

    let styled = sanitize(&explanation_text(&explanation, 80, Some(24)));
    let plain = strip_str(&styled).to_string();
    assert!(!plain.contains(|letter: char| letter.is_control() && letter != '\n'), "{plain:?}");

    let json = explanation_json(&explanation);
    if let Value::Object(ledger) = &json["ledger"] {
        let bytes = |value: &Value| value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
        let lines: i128 = ledger["lines"].as_array().into_iter().flatten().filter_map(|line| bytes(&line["bytes"])).sum();
        if let (Some(total), Some(rest)) = (bytes(&ledger["total_bytes"]), bytes(&ledger["unaccounted_bytes"])) {
            // Sums of absurd figures stop at what a number holds.
            let is_absurd = total.max(lines) > i128::from(i64::MAX);
            assert!(is_absurd || total == lines + rest, "{json:#}");
        }
    }
});
