//! Tests of the C interface.
//!
//! They are one program, because each further one would link the crates under test again.

mod common;
mod header;
mod programs;
