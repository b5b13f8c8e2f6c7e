//! How large a batch can be, from a few short runs.
//!
//! Runs of one program with different batches make the same allocations in the same order; only sizes differ. So the
//! size of every allocation is a law of the batch, read off the runs one allocation at a time, and a run with any other
//! batch can be written down and replayed exactly under any allocator: rounding and fragmentation are then not
//! guessed. Nothing here starts a program; that is the command line's.
//!
//! ```text
//! cycles.rs     how often memory rose and fell: the steps a run has made
//! probe.rs      one run: its program, who asked for what, what the device held beside it
//! sizes.rs      what recorded sizes say of what was asked for
//! law.rs        the size of one allocation as a law of the batch
//! aligning.rs   which allocation of one run is which of another
//! matching.rs   the laws of all allocations of a program
//! scaled.rs     the program at another batch
//! replaying.rs  what would come of it in so much memory
//! workspaces.rs what a program can do without
//! budget.rs     what an allocator may take of a card
//! search.rs     the largest batch that fits
//! plan/         which batch to run next: types, predictions
//! answer.rs     what is told in the end
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
