//! Predicts the largest batch that fits from a few short runs.
//!
//! Runs of one program with different batches make the same allocations in the same order; only sizes differ. So the
//! size of every allocation is a function of the batch, its law, which is derived from the runs. A run with any other
//! batch can then be constructed and replayed exactly under any allocator, so rounding and fragmentation are not
//! guessed. This crate does not start programs; the command does.
//!
//! ```text
//! cycles.rs     counts the steps of a run
//! probe.rs      one run: its program, its sites, memory outside the allocator
//! sizes.rs      what recorded sizes reveal about requests
//! law.rs        the size of one allocation as a function of the batch
//! aligning.rs   which allocations of two runs correspond
//! matching.rs   the laws of all allocations of a program
//! scaled.rs     the program at another batch
//! replaying.rs  replays it in a given amount of memory
//! workspaces.rs memory that a program can do without
//! budget.rs     the memory of a GPU that is available to an allocator
//! search.rs     the largest batch that fits
//! plan/         which batch to run next: types, predictions
//! answer.rs     the final answer
//! ```
#![forbid(unsafe_code)]

mod aligning;
mod answer;
mod budget;
mod cycles;
mod law;
mod matching;
mod plan;
mod probe;
mod replaying;
mod scaled;
mod search;
mod sizes;
#[cfg(test)]
mod testing;
mod workspaces;

pub use answer::{Alternative, Answer, Composition, SiteShare};
pub use budget::{Budget, Margin};
pub use cycles::Cycles;
pub use law::SizeLaw;
pub use plan::{Bounds, Next, Plan, Prediction, RunOutcome, Stop};
pub use probe::Probe;
pub use scaled::Scaled;
pub use search::largest;
pub use sizes::Sizes;
