//! `makeroom ps` on the software NVML, with real processes. Every cause of unowned memory that can be produced
//! without a GPU is produced here and must be named.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic, and says what it skips")]

mod causes;
mod findings;
mod recordings;
mod require;
mod situations;
