//! Replays recorded allocations under other allocators: exact models and what-if runs.
//!
//! ```text
//! allocators.rs   allocators by name                    driver.rs       the driver interface of the models
//! program.rs      a program's allocations by number     device.rs       a simulated device
//! pytorch/        PyTorch's allocator, to the byte      costs.rs        costs of driver calls
//! models/         all others                            replay.rs       runs a program under a model
//! model.rs        the interface of all models           smallest.rs     the least memory it completes in
//! check/          checks PyTorch's on a recording       comparison.rs   several runs of one recording
//! tune.rs         the best settings for a recording     segment_lifetimes.rs  segments over time, and their pools
//! addresses.rs    where the driver places memory        inside.rs       separates the framework's memory
//! releases.rs     whether the program or the allocator released memory
//! ```
#![forbid(unsafe_code)]

mod addresses;
mod allocators;
mod check;
mod comparison;
mod costs;
mod device;
mod driver;
mod inside;
mod model;
mod models;
mod program;
mod pytorch;
mod releases;
mod replay;
mod segment_lifetimes;
mod smallest;
#[cfg(test)]
mod testing;
mod tune;

pub use allocators::{
    AllocatorError, AllocatorSpec, NoPytorch, parse, recorded_allocator, require_pytorch, usual_allocators,
};
pub use check::{Check, LimitBounds, Mismatch, check};
pub use comparison::{ComparedRun, Comparing, Comparison, Memory, Workload};
pub use device::{Device, PAGE};
pub use driver::{Driver, Refused};
pub use inside::Inside;
pub use model::Model;
pub use models::OptionError;
pub use program::{Allocation, Program, Step};
pub use pytorch::{Pytorch, Request, Settings, SettingsError, Version};
pub use replay::{Outcome, Refusal, replay, replay_from_start, replay_watched};
pub use smallest::smallest_memory;
pub use tune::{Trial, Tuning, candidates, tune};
