//! Who holds the memory of GPUs: NVML, `/proc`, control groups and recordings joined into one account per device.
//!
//! ```text
//! survey      what the driver says, asked in a process of its own, within a deadline
//! processes   what /proc says: open files of the driver, states, namespaces, containers, jobs, users
//! recording   what a running program's own .room recording says
//! account     the three joined: total = free + reserved + Σ holders + what nobody listed holds, and why
//! remedy      what would have to go, the command that would do it, and what would be lost
//! watcher     all of it again and again
//! doctor      what can go wrong here before anything runs
//! ```
//!
//! Nothing here prints, and nothing here ends a process.
#![forbid(unsafe_code)]

mod account;
pub mod doctor;
mod processes;
mod recording;
mod remedy;
mod survey;
mod watcher;

pub use account::{
    Account, Cause, Certainty, Device, DeviceMemory, Driver, Finding, Holder, IdleContexts, Label, Unlisted,
    UnlistedCause,
};
pub use processes::{Belonging, OpenFiles, Process, Processes, Stat, State, View};
pub use recording::{Recording, is_being_written, open_recording};
pub use remedy::{Plan, Remedy, Requirement, require};
pub use survey::{
    Card, ComputeMode, List, Listed, Memory, Problem, ProblemKind, Survey, SurveyError, Surveyor, answer,
};
pub use watcher::{Watcher, WatcherOptions};
