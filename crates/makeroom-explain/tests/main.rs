//! Tests of explanations of recordings.
//!
//! They are a single program, so that the crates under test are linked only once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod growth;
mod health;
mod pools;
mod processes;
mod recordings;
