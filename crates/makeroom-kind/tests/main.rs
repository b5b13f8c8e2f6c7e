//! Tests of the kinds of allocations.
//!
//! They are one program, because each further one would link the crates under test again.

mod properties;
mod support;
mod truth;
