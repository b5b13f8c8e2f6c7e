//! Which processes hold GPU memory: joins NVML, `/proc`, cgroups and recordings into one account per device.
//!
//! ```text
//! survey      queries the driver, in a child process with a timeout
//! processes   reads /proc: open driver files, states, namespaces, containers, jobs, users
//! recording   reads the .room recordings of running programs
//! recorders   follows these recordings: heartbeats, and programs that run out of memory
//! account     joins the three: total = free + reserved + Σ holders + unlisted, with causes for the last
//! remedy      which processes would have to exit, the commands for that, and what would be lost
//! watcher     takes accounts, once or periodically
//! doctor      checks this machine for problems
//! helper      a thread that is abandoned when it blocks
//! ```
//!
//! This crate never prints, and never ends a user's process.
#![forbid(unsafe_code)]

mod account;
pub mod doctor;
mod helper;
mod processes;
mod recorders;
mod recording;
mod remedy;
mod survey;
mod watcher;

pub use account::{
    Account, Cause, Certainty, Device, DeviceMemory, Driver, Finding, Holder, IdleContexts, Label, Unlisted,
    UnlistedCause,
};
pub use processes::{Belonging, OpenFiles, PodName, Process, Processes, Stat, State, View};
pub use recorders::{LatestFailure, OutOfMemory, Recorder, Recorders, Tally};
pub use recording::{Recording, is_being_written, open_recording};
pub use remedy::{Plan, Remedy, Requirement, require};
pub use survey::{
    Card, ComputeMode, List, Listed, Memory, Problem, ProblemKind, Survey, SurveyError, Surveyor, answer,
};
pub use watcher::{Watcher, WatcherOptions};
