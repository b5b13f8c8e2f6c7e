//! Tests of the page's data.
//!
//! They are a single program, so that the crates under test are linked only once.

mod reports;
mod requests;
mod traces;
