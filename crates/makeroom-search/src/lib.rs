//! Searches error texts and logs for hundreds of patterns, words and anchors.
//!
//! ```
//! use makeroom_search::pattern;
//!
//! let request = pattern(r"Tried to allocate ([\d.]+) (\w+)");
//! let found = request.captures("CUDA out of memory. Tried to allocate 2.00 GiB").unwrap();
//! assert_eq!((&found[1], &found[2]), ("2.00", "GiB"));
//! ```
//!
//! ```text
//! pattern/       regular expressions, each compiled only for a text that may match it
//! classes.rs     gives `\d`, `\w` and `\b` in a pattern their ASCII meaning
//! word_set.rs    searches for hundreds of words at once
//! folded.rs      searches for one word, ignoring case; `-` equals `_`
//! anchors.rs     finds the words of all error messages in logs of gigabytes
//! controls.rs    removes escape sequences and control characters
//! ```
//!
//! Explaining a text spends most of its time here and in the regex engine. As a separate crate, this code can be optimized for
//! speed without optimizing its callers.
#![forbid(unsafe_code)]

mod anchors;
mod classes;
mod controls;
mod folded;
mod pattern;
mod word_set;

pub use anchors::{AnchorScanner, Frequencies, LEAST_SAMPLED, SHORT_ANCHOR, counts_at};
pub use classes::{mixed_pattern, pattern, pattern_set};
pub use controls::{text_without_controls, without_controls};
pub use folded::{contains_folded, find_folded};
pub use pattern::{Captures, Match, Regex, RegexSet};
pub use word_set::{Occurrence, WordSet};
