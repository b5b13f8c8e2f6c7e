//! Tests of the doctor and of the remedies.
//!
//! They are a single program, so that the crates under test are linked only once.

mod doctor;
mod remedy;
