//! The pool's policy: which memory a block gets, when pages move, when the pool grows. No memory, no unsafe code.
//!
//! ```text
//! backing.rs   what the policy asks of a device    report.rs   figures, pictures, errors
//! policy.rs    the pool
//! ```
//!
//! The rules, in the order in which a request tries them:
//!
//! 1. memory that is free on its stream, or for everybody;
//! 2. memory that was freed on other streams, where the GPU has passed their free;
//! 3. pages that are wholly free are moved to where the request can have them in one piece, once the GPU is done
//!    with them;
//! 4. new handles;
//! 5. where these are refused: frees that wait for a stream are waited for, and all of it is tried again.
//!
//! Layers above add threads, limits per user, tracking and spilling; the policy knows none of them.

mod backing;
mod policy;
mod report;

pub use backing::{Backing, Handle, Mark, PAGE, Piece, Refused};
pub use policy::{Patience, Policy, Settings};
pub use report::{
    Allocated, BlockId, BlockState, BlockView, Cause, Counters, FreeError, Freed, SegmentView, Shortage,
    Snapshot, Stats,
};
