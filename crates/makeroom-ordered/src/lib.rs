//! [`OrderedMap`] and [`OrderedSet`] have the same order and methods as [`BTreeMap`](std::collections::BTreeMap) and
//! [`BTreeSet`](std::collections::BTreeSet), and compile faster.
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
//! For each pair of types, the compiler generates the code again that splits, merges and rebalances the nodes of a
//! `BTreeMap`: about 5,000 lines of LLVM IR. Such code is a large part of programs that group rows by many different keys. In
//! `makeroom-job`, 206,000 of 517,000 lines belonged to maps and sets, and 30,000 more to the sort in their `collect`. With
//! this crate, maps and sets have 23,000 of 305,000 lines, and `makeroom-job` compiles in 17.7 CPU seconds instead of 25.
//!
//! # How
//!
//! ```text
//! entries   [(d, 4), (a, 1), (c, 3), (b, 2)]      generic: a vector in insertion order
//! order     [[1, 3], [2, 0]]                      not generic: chunks of positions in key order
//! ```
//!
//! The code that searches, splits and merges belongs to the order. It compares entries through a function pointer, so it is
//! compiled once. A removal moves the last entry into the gap, and searches for that entry to update its position. As long as
//! keys arrive in order, and after `collect`, the entries themselves are in order and no positions are stored.
//!
//! # When to use `BTreeMap`
//!
//! - If the map dominates the running time. With a million keys in random order, lookups and removals take about twice as
//!   long, insertions 1.4 times as long and `collect` ten times as long. With keys in order, insertion and `collect` are faster;
//!   iteration is always faster. `cargo bench -p makeroom-ordered` compares both.
//! - If a map shrinks and lives on: it keeps the memory of its largest size.
//! - If it changes between calls of `iter_mut` or `values_mut` that visit only a few entries: they sort all entries first.
//! - If it can have 2³² entries. Both maps abort the process when memory runs out, but this one also panics with "capacity
//!   overflow" instead of adding entry number 2³².
//!
//! Methods that no crate of this repository uses are missing.
#![forbid(unsafe_code)]

pub mod map;
mod order;
mod positions;
pub mod set;

pub use map::{Entry, OrderedMap};
pub use set::OrderedSet;
