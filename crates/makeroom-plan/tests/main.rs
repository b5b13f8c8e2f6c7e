//! Tests of the planner.
//!
//! They are one program, because each further one would link the crates under test again.

mod instances;
mod properties;
