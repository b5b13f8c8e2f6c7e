//! Tests of the kinds of allocations.
//!
//! They are a single program, so that the crates under test are linked only once.

mod properties;
mod support;
mod truth;
