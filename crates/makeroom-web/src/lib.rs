//! `makeroom why` in a web browser: a file in, the answer of `why` out, without a server.
//!
//! WebAssembly passes numbers only, so the page writes the file into memory of this module and reads the answer from it:
//!
//! ```text
//! makeroom_input(bytes)       where to write the file; 0 if it does not fit into memory
//! makeroom_explain(columns)   explains it; returns the length of the answer
//! makeroom_answer()           where the answer is
//! ```
//!
//! The answer is JSON: `{"text": …, "json": …}`, as `why` and `why --json` print them, or `{"error": …, "hint": …}`. A page
//! uses a new instance for each file, so a file that exhausts its memory ends only that instance.

use std::cell::RefCell;

use makeroom_explain::{Explanation, TraceQuestion, explain_trace};
use makeroom_report::{explanation_json, explanation_text, sanitize};
use makeroom_text::TextReader;
use makeroom_trace::Error;
use serde_json::{Value, json};

/// What the page writes and reads.
#[derive(Debug, Default)]
struct Exchange {
    input: Vec<u8>,
    answer: Vec<u8>,
}

thread_local! {
    static EXCHANGE: RefCell<Exchange> = RefCell::default();
}

/// Makes room for a file of this size. Returns its address, or null if there is not enough memory.
#[unsafe(no_mangle)]
pub extern "C" fn makeroom_input(size: usize) -> *mut u8 {
    EXCHANGE.with_borrow_mut(|exchange| {
        let mut input = Vec::new();
        if input.try_reserve_exact(size).is_err() {
            return std::ptr::null_mut();
        }
        input.resize(size, 0);
        exchange.input = input;
        exchange.input.as_mut_ptr()
    })
}

/// Explains the file, in lines of at most this many characters. Returns the length of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn makeroom_explain(columns: usize) -> usize {
    EXCHANGE.with_borrow_mut(|exchange| {
        let input = std::mem::take(&mut exchange.input);
        exchange.answer = answer(&input, columns).to_string().into_bytes();
        exchange.answer.len()
    })
}

/// The address of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn makeroom_answer() -> *const u8 {
    EXCHANGE.with_borrow(|exchange| exchange.answer.as_ptr())
}

fn answer(input: &[u8], columns: usize) -> Value {
    match explain(input) {
        Ok(explanation) => {
            let text = sanitize(&explanation_text(&explanation, columns, None));
            let text = anstream::adapter::strip_str(&text).to_string();
            json!({ "text": text, "json": explanation_json(&explanation) })
        }
        Err(error) => json!({ "error": error.to_string(), "hint": error.hint() }),
    }
}

fn explain(input: &[u8]) -> Result<Explanation, Error> {
    let mut text = TextReader::new();
    let trace = makeroom_trace::read_streaming(input, |bytes| text.push(bytes))?;
    Ok(match trace {
        Some(trace) => explain_trace(&trace, &TraceQuestion::default()),
        None => text.finish(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(input: &[u8]) -> Value {
        answer(input, 80)
    }

    #[test]
    fn a_log_has_the_answer_of_why() {
        let log = b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated; 0 bytes free; 7.50 GiB reserved in total by PyTorch)\n";
        let answer = explained(log);
        assert_eq!(answer["json"]["request"]["bytes"], 2_u64 << 30, "{answer:#}");
        assert!(answer["text"].as_str().is_some_and(|text| text.contains("GPU 0, 8.00 GiB")), "{answer:#}");
    }

    #[test]
    fn a_damaged_snapshot_has_an_error() {
        let answer = explained(b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff}");
        assert!(answer["error"].as_str().is_some_and(|error| !error.is_empty()), "{answer:#}");
    }

    #[test]
    fn a_page_passes_a_file_and_reads_the_answer() {
        let place = makeroom_input(64);
        assert!(!place.is_null());
        let size = makeroom_explain(80);
        assert!(size > 2 && !makeroom_answer().is_null());
    }
}
