//! Small programs that run out of GPU memory, each in its own way. `makeroom demo` runs, records and explains them.
//!
//! A situation is an ordinary program that uses the CUDA driver. It does not depend on makeroom: it runs in its own
//! process, on a real GPU or on the software GPU, and its explanation comes only from the recording. Sizes are shares
//! of the memory that the driver reports as free, so any GPU with at least 1 GiB will do.
//!
//! Functions that allocate memory are never inlined, and their names are exported without mangling, because the
//! explanation shows them.
//!
//! ```text
//! situation.rs    the definition of a situation   list.rs        all of them, in the order in which they are shown
//! card.rs         the GPU to run on               framework.rs   a framework with a caching allocator: PyTorch's
//! situations/     one file each
//! ```

mod card;
mod framework;
mod list;
mod situation;
mod situations;

pub use list::{SITUATIONS, find};
pub use situation::{Ending, OnRealCard, Outcome, Situation};
