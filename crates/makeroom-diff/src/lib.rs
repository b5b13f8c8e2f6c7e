//! What changed between two runs: their peaks, by kind of memory and by line of code; and a gate for CI.
//!
//! ```text
//! profile.rs   one run, reduced to the memory at its peak or failure: kinds and lines. Small, and a file: a baseline
//! reduce.rs    reduces a recording to a profile
//! align.rs     which places of a function are the same, although an edit moved them
//! places.rs    the parts of a place
//! lines.rs     which line of one run is which line of the other: unchanged, grown, moved, new, gone
//! batch.rs     whether the runs differ in the size of their batches: sizes scale by one ratio
//! compare.rs   the difference and its main cause
//! gate.rs      whether a run needs more than a baseline allows
//! ```
//!
//! Nothing here reads files or words sentences: the difference is data.
//!
//! ```
//! use makeroom_diff::{Allowance, Profile, Verdict, compare, gate};
//!
//! let before = Profile { peak_bytes: 1000, ..Profile::default() };
//! let after = Profile { peak_bytes: 1100, ..Profile::default() };
//! assert!(gate(&before, &after, "10%".parse()?).is_within());
//! assert!(!gate(&before, &after, "2%".parse()?).is_within());
//! assert_eq!(compare(&before, &before).verdict, Verdict::Same);
//! # Ok::<(), makeroom_diff::ParseAllowanceError>(())
//! ```
#![forbid(unsafe_code)]

mod align;
mod batch;
mod compare;
mod gate;
mod lines;
mod places;
mod profile;
mod reduce;

pub use batch::BatchRatio;
pub use compare::{Difference, KindChange, Verdict, compare};
pub use gate::{Allowance, Gate, ParseAllowanceError, gate};
pub use lines::{LineChange, LineStatus};
pub use profile::{BASELINE, GrowingLine, Line, Profile, Source, StepGrowth};
pub use reduce::Moment;
