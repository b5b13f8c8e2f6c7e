//! Tests of the placement policies, against reference models.
//!
//! They are a single program, so that the crates under test are linked only once.

mod paged;
mod policies;
mod pool;
mod pool_streams;
mod support;
