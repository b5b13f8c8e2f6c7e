//! Tests of the kinds of allocations.
//!
//! They are a single program, so that the crates under test are linked only once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod properties;
mod support;
mod truth;
