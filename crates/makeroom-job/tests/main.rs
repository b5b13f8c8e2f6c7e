//! Tests of the answers about jobs of many ranks.
//!
//! They are a single program, so that the crates under test are linked only once.

mod answer;
mod clusters;
mod ends;
mod evidence;
mod logs;
mod support;
