//! Tests of the allocator models and of replays, on recordings of real runs and on hostile ones.
//!
//! They are a single program, so that the crates under test are linked only once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cuda_async;
mod exactness;
mod growth;
mod hostile;
mod makeroom;
#[cfg(target_os = "linux")]
mod memory;
mod models;
mod paged;
mod support;
