//! Small programs that run out of GPU memory, each in its own way: what `makeroom demo` runs, records and explains.
//!
//! A situation is an ordinary program against the CUDA driver. It knows nothing of makeroom: it runs in a process of
//! its own, on a real card or on the software GPU, and what is said about it comes from the recording alone. The sizes
//! are shares of the memory that the driver says is free, so every card of a gibibyte or more will do.
//!
//! Functions that take memory are never inlined, and their names are exported as they are written, without what a
//! compiler adds: they are what the explanation shows.
//!
//! ```text
//! situation.rs    what a situation is      list.rs        all of them, in the order they are shown
//! card.rs         the card to run on       framework.rs   a framework with a caching allocator: PyTorch's
//! situations/     one file each
//! ```

mod card;
mod framework;
mod list;
mod situation;
mod situations;

pub use list::{SITUATIONS, find};
pub use situation::{Ending, OnRealCard, Outcome, Situation};
