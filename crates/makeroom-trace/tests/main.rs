//! Tests of the readers and of the `.room` format, on golden, real, mutated and random files.
//!
//! They are a single program, so that the crates under test are linked only once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hostile;
mod inputs;
mod jax_profiles;
#[cfg(target_os = "linux")]
mod memory;
mod mutations;
mod newest;
mod real_traces;
mod rmm_logs;
mod room_compaction;
mod room_frames;
mod room_golden;
mod room_import;
mod room_process;
mod room_random;
mod room_recordings;
mod snapshots;
mod support;
