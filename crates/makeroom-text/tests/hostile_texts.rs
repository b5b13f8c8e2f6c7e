//! Whatever text comes in, an answer comes out: no panic, and never more certainty than figures allow.
#![allow(clippy::unwrap_used, reason = "what a test cannot read has failed it")]

use std::fs;
use std::path::PathBuf;

use makeroom_text::explain_text;
use proptest::prelude::*;
use serde_json::Value;

fn real_texts() -> Vec<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/provoked.jsonl");
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["text"].as_str().unwrap().to_owned())
        .collect()
}

fn mutated(text: &str, cuts: &[(usize, usize, Vec<u8>)]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (at, length, insert) in cuts {
        let at = at % (bytes.len() + 1);
        let end = (at + length).min(bytes.len());
        bytes.splice(at..end, insert.iter().copied());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn mutated_texts_are_answered(
        which in any::<prop::sample::Index>(),
        cuts in prop::collection::vec((any::<usize>(), 0_usize..40, prop::collection::vec(any::<u8>(), 0..12)), 1..8),
    ) {
        let texts = real_texts();
        let text: &String = which.get(&texts);
        let explanation = explain_text(&mutated(text, &cuts));
        prop_assert!(!explanation.verdict.summary.is_empty());
        prop_assert!(!explanation.causes.is_empty());
    }

    #[test]
    fn figures_of_any_size_are_answered(numbers in prop::collection::vec("[0-9.,]{1,30}", 8), unit in "[KMGTPE]?i?B|bytes|") {
        let [request, total, free, live, cached, own, other, limit] = &numbers[..] else { unreachable!() };
        let text = format!(
            "CUDA out of memory. Tried to allocate {request} {unit}. GPU 0 has a total capacity of {total} {unit} of which {free} {unit} is free. Process 1 has {other} {unit} memory in use. Including non-PyTorch memory, this process has {own} {unit} memory in use. {limit} {unit} allowed; Of the allocated memory {live} {unit} is allocated by PyTorch, and {cached} {unit} is reserved by PyTorch but unallocated."
        );
        let explanation = explain_text(&text);
        if let Some(ledger) = &explanation.ledger {
            prop_assert!(ledger.lines().len() < 10);
        }
    }

    #[test]
    fn noise_is_answered(text in "\\PC{0,400}", lines in prop::collection::vec("[ -~]{0,80}", 0..40)) {
        let _ = explain_text(&text);
        let _ = explain_text(&lines.join("\n"));
    }
}
