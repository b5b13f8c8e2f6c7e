//! Tests of the answers about jobs of many ranks.
//!
//! They are a single program, so that the crates under test are linked only once.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test may panic, and be slow")]

mod answer;
mod clusters;
mod ends;
mod evidence;
mod logs;
mod support;
