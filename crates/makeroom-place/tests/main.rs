//! Tests of the placement policies, against reference models.
//!
//! They are one program, because each further one would link the crates under test again.

mod paged;
mod policies;
mod pool;
mod pool_streams;
mod support;
