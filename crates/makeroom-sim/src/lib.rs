//! Runs recorded allocations under other allocators: exact models, what-if, offline planner.
//!
//! ```text
//! allocators.rs   allocators by name                    driver.rs       what a model asks of a driver
//! program.rs      what a program did, without addresses device.rs       a simulated device
//! pytorch/        PyTorch's allocator, to the byte      costs.rs        what driver calls cost
//! models/         all others                            replay.rs       runs a program under a model
//! model.rs        what every model can do               smallest.rs     the least memory it completes in
//! check/          proves PyTorch's on a recording       comparison.rs   several runs of one recording
//! tune.rs         the best settings for a recording     homes.rs        segments over time, and their pools
//! addresses.rs    where the driver puts memory          inside.rs       what is the framework's own
//! ```
#![forbid(unsafe_code)]

mod addresses;
mod allocators;
mod check;
mod comparison;
mod costs;
mod device;
mod driver;
mod homes;
mod inside;
mod model;
mod models;
pub mod plan;
mod program;
mod pytorch;
mod replay;
mod smallest;
#[cfg(test)]
mod testing;
mod tune;

pub use allocators::{
    AllocatorError, AllocatorSpec, NoPytorch, parse, recorded_allocator, require_pytorch, usual_allocators,
};
pub use check::{Check, Mismatch, check};
pub use comparison::{ComparedRun, Comparing, Comparison, Memory, Workload};
pub use device::{Device, PAGE};
pub use driver::{Driver, Refused};
pub use inside::Inside;
pub use model::Model;
pub use models::OptionError;
pub use program::{Allocation, Program, Step};
pub use pytorch::{Pytorch, Request, Settings, SettingsError, Version};
pub use replay::{Outcome, Refusal, replay, replay_from_start};
pub use smallest::smallest_memory;
pub use tune::{Trial, Tuning, candidates, tune};
