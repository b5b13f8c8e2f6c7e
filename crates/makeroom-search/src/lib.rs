//! Searches error texts and logs for what a program knows: patterns, words and anchors, hundreds of each.
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
//! pattern/       regular expressions, compiled only for a text that may match;  classes.rs  which characters `\w` stands for
//! word_set.rs    hundreds of words at once
//! folded.rs      one word, where `-` and `_` are the same
//! anchors.rs     the words of all error messages, in logs of gigabytes;  controls.rs  what such a log is cleaned of first
//! ```
//!
//! This is its own crate because it is what takes the time: it is optimized for speed, the code that uses it for size.
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
