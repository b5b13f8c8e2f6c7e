//! Error texts and traces in; ledger, causes and fixes out, as data.
#![forbid(unsafe_code)]

mod advice;
mod batch;
mod cause;
mod explanation;
mod ledger;
mod library;
mod native;
mod run;
mod text;
mod thresholds;
mod trace;
mod watch;

pub use cause::{Cause, Certainty};
pub use explanation::{
    Alternative, Explanation, Finding, Fix, Growth, InputKind, InputSummary, Request, Site, Verdict,
};
pub use ledger::{Ledger, LedgerLine};
pub use run::{
    ExpandableSummary, HostGrowth, Kept, KernelHeap, LaunchFailure, LeftContext, LeftKind, LeftSite,
    Leftover, LibraryHold, Missing, PoolSummary, RefusedContexts, RunSummary, WaitingFrees,
};
pub use text::{TextReader, explain_text};
pub use trace::{
    Allocation, Allocations, Beside, BlockEnds, BlockSizes, HeldSegment, LiveBlock, Part, Places, Room,
    SegmentsHeld, SizesAtEnd, TraceQuestion, cut, explain_running, explain_trace, held_beside, is_small,
    place_of,
};
pub use watch::{Moments, Watched, WatchedStep, watch};
