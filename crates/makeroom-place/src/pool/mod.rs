//! The pool's policy: which memory a block gets, when pages move, when the pool grows. No memory, no unsafe code.
//!
//! ```text
//! policy.rs    allocate and free                     backing.rs   what the policy asks of a device
//! room.rs      when memory is missing                window.rs    where a block could lie
//! pending.rs   blocks that several streams use       streams.rs   how far the GPU has come
//! trim.rs      gives memory back                     snapshot.rs  a picture of the pool
//! tiles.rs     all addresses, cut into tiles         bins.rs      free tiles by size
//! handles.rs   physical memory, and where it is      lists.rs     which bins a tile is in
//! report.rs    figures, pictures, errors             donors.rs    handles that move, and new ones
//! resting.rs   the block that was freed last         filled.rs    which streams have free memory
//! ```
//!
//! The rules, in the order in which a request tries them:
//!
//! 1. memory that is free on its stream, or for everybody;
//! 2. memory that was freed on other streams, where the GPU has passed their free;
//! 3. pages that are wholly free are moved to where the request can have them in one piece, once the GPU is done
//!    with them: those of the request's own stream are waited for briefly, those of others not at all;
//! 4. new handles;
//! 5. where these are refused: frees that wait for a stream are waited for, and all of it is tried again.
//!
//! Other streams are waited for only when new memory was refused, and never without an end: they may be waiting for the
//! thread that asks.
//!
//! Layers above add threads, limits per user, tracking and spilling; the policy knows none of them.

mod backing;
mod bins;
mod donors;
mod filled;
mod handles;
mod lists;
mod pending;
mod policy;
mod report;
mod resting;
mod room;
mod snapshot;
mod streams;
mod tiles;
mod trim;
mod window;

pub use backing::{Backing, Handle, Mark, PAGE, Patience, Piece, Refused};
pub use lists::SMALL;
pub use policy::{Means, Policy, Settings};
pub use report::{
    Allocated, BlockId, BlockState, BlockView, Cause, Counters, FreeError, Freed, SegmentView, Shortage,
    Snapshot, Stats,
};
pub use streams::EVERY_STREAM;
