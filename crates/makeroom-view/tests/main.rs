//! Tests of the page's data.
//!
//! They are a single program, so that the crates under test are linked only once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod reports;
mod requests;
mod traces;
