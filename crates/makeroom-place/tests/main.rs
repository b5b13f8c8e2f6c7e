//! Tests of the placement policies, against reference models.
//!
//! They are a single program, so that the crates under test are linked only once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod paged;
mod policies;
mod pool;
mod pool_streams;
mod support;
