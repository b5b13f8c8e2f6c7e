//! `makeroom ps` on the software NVML, with real processes: every cause of memory without an owner that can be made
//! without a GPU is made here and must be named.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod causes;
mod findings;
#[path = "../support/machine.rs"]
mod machine;
mod recordings;
mod require;
mod situations;
