//! The pool's policy: which memory a block gets, when pages move, and when the pool grows. It has no memory of its own
//! and no unsafe code.
//!
//! ```text
//! policy.rs    allocate and free                     backing.rs   what the policy needs from a device
//! room.rs      what to do when no free block fits    window.rs    addresses where a block could be placed
//! pending.rs   blocks that several streams use       streams.rs   the GPU's progress on each stream
//! trim.rs      returns memory to the device          snapshot.rs  a snapshot of the pool
//! tiles.rs     all addresses, divided into tiles     bins.rs      free tiles by size
//! handles.rs   physical memory, and where it is      lists.rs     which bins a tile is in
//! report.rs    statistics, snapshots, errors         donors.rs    handles that move, and new ones
//! resting.rs   the most recently freed block         filled.rs    which streams have free memory
//! ```
//!
//! A request tries these sources in order:
//!
//! 1. memory that is free on its stream, or on every stream;
//! 2. memory freed on other streams, if the GPU has passed the free;
//! 3. entirely free pages, moved to make a contiguous block, once the GPU has finished using them: the pool waits
//!    briefly for pages of the request's own stream, and not at all for pages of others;
//! 4. new handles;
//! 5. if creating these fails: the pool waits for pending frees and tries everything again.
//!
//! The pool waits for other streams only after creating new memory has failed, and always with a timeout, because a
//! stream can be waiting for the calling thread.
//!
//! The layers above add threads, per-user limits, tracking and spilling; the policy does not know about them.

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

pub use backing::{Backing, Fence, Handle, PAGE, Piece, Refused, Timeout};
pub use lists::SMALL;
pub use policy::{Means, Policy, Settings};
pub use report::{
    Allocated, BlockId, BlockState, BlockView, Cause, Counters, FreeError, Freed, SegmentView, Shortage,
    Snapshot, Stats,
};
pub use streams::EVERY_STREAM;
