//! Tests of the planner.
//!
//! They are a single program, so that the crates under test are linked only once.

mod instances;
mod properties;
