//! Tests of the data of the page.
//!
//! They are one program, because each further one would link the crates under test again.

mod reports;
mod requests;
mod traces;
