//! Tests of the doctor and of the remedies.
//!
//! They are a single program, so that the crates under test are linked only once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod doctor;
mod remedy;
