//! Tests of the C interface.
//!
//! They are a single program, so that the crates under test are linked only once.

mod common;
mod header;
mod programs;
