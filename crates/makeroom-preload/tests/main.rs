//! Tests of the recorder and its pool in real programs, on the software GPU.
//!
//! They are a single program, so that the crates under test are linked only once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bounded;
mod cost;
mod dependencies;
mod hazards;
mod hooks;
mod limits;
mod modules;
mod paging;
mod paging_model;
mod pool;
mod python;
mod support;
