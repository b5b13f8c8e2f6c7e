//! Tests of the doctor and of the remedies.
//!
//! They are one program, because each further one would link the crates under test again.

mod doctor;
mod remedy;
