//! [`OrderedMap`] and [`OrderedSet`] are ordered as [`BTreeMap`](std::collections::BTreeMap) and
//! [`BTreeSet`](std::collections::BTreeSet) are, have the same methods, and compile faster.
//!
//! ```
//! use makeroom_ordered::OrderedMap;
//!
//! let mut bytes_by_line = OrderedMap::new();
//! for (line, bytes) in [("train.py:9", 512), ("model.py:30", 64), ("train.py:9", 256)] {
//!     *bytes_by_line.entry(line).or_insert(0) += bytes;
//! }
//! assert!(bytes_by_line.iter().eq([(&"model.py:30", &64), (&"train.py:9", &768)]));
//! assert_eq!(bytes_by_line.range("n"..).next_back(), Some((&"train.py:9", &768)));
//! ```
//!
//! # Why
//!
//! The compiler translates the nodes of a `BTreeMap`, and how they split, merge and lend to one another, again for each pair
//! of types: about 5,000 lines of LLVM IR per pair. Programs that group rows by many different keys consist of that. In
//! `makeroom-job`, 206,000 of 517,000 lines belonged to maps and sets, and 30,000 more to the sort with which they are
//! collected. With this crate, maps and sets have 23,000 of 305,000 lines, and the crate compiles in 17.7 CPU seconds instead
//! of 25.
//!
//! # How
//!
//! ```text
//! entries   [(d, 4), (a, 1), (c, 3), (b, 2)]      generic: a vector, in the order of insertion
//! order     [[1, 3], [2, 0]]                      not generic: chunks of positions, in the order of keys
//! ```
//!
//! Searching, splitting and merging happen in the order, which compares entries through a function pointer. It is compiled
//! once. A removal fills the gap with the last entry, and searches for that entry to correct its position. While keys arrive
//! in order, and after `collect`, the entries themselves lie in order and positions are not stored.
//!
//! # When to use `BTreeMap`
//!
//! - If the map dominates the running time. With a million keys in random order, lookups and removals take about twice as
//!   long, insertions 1.4 times and `collect` ten times; with keys in order, insertion and `collect` are faster, and iteration
//!   always is. `cargo bench -p makeroom-ordered` compares both.
//! - If a map becomes small again and lives on: it keeps the memory of its largest size.
//! - If it is changed between calls of `iter_mut` or `values_mut` that visit only a few entries: they sort all entries first.
//! - If it can have 2³² entries. A `BTreeMap` ends the process when memory runs out; this map also panics, with "capacity
//!   overflow", before its 2³²nd entry.
//!
//! Methods that no crate of this repository uses are missing.
#![forbid(unsafe_code)]

pub mod map;
mod order;
mod positions;
pub mod set;

pub use map::{Entry, OrderedMap};
pub use set::OrderedSet;
