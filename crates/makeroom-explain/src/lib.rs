//! Error texts and recordings in; the memory's breakdown, causes and fixes out, as data.
//!
//! ```
//! use makeroom_explain::{Cause, explain_text};
//!
//! let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
//!     23.69 GiB of which 1.06 GiB is free. Including non-PyTorch memory, this process has 22.62 GiB memory in use. Of the \
//!     allocated memory 21.90 GiB is allocated by PyTorch, and 312.00 MiB is reserved by PyTorch but unallocated.";
//! let explanation = explain_text(text);
//! assert_eq!(explanation.verdict.cause, Cause::LiveDataFillsDevice);
//! assert!(!explanation.causes[0].fixes.is_empty());
//! ```
#![forbid(unsafe_code)]

mod advice;
mod batch;
mod cause;
mod explanation;
mod health;
mod ledger;
mod library;
mod native;
mod recording;
mod run;
mod text;
mod thresholds;
mod trace;
mod watch;

pub use cause::{Cause, Certainty};
pub use explanation::{
    Alternative, Explanation, Finding, Fix, Growth, InputKind, InputSummary, Request, Site, Verdict, rate,
};
pub use health::{Health, HealthState, Settled, Trend, Usage};
pub use ledger::{Ledger, LedgerLine};
pub use recording::{explain_running, explain_text_with, explain_trace};
pub use run::{
    ExpandableSummary, HostGrowth, Kept, KernelHeap, LaunchFailure, LeftContext, LeftKind, LeftSite,
    Leftover, LibraryHold, Missing, PoolSummary, RefusedContexts, RunSummary, WaitingFrees,
};
pub use text::{TextReader, explain_text};
pub use trace::{
    Across, AcrossGroup, Allocation, Allocations, BlockEnds, BlockSizes, By, DeviceOverhead, Group,
    GroupGrowth, GroupNames, Grouped, Growing, GrowingLine, HeldOverTime, HeldSegment, LiveBlock, LiveLine,
    OverheadStep, Part, Places, Room, SegmentsHeld, SizesAtEnd, TraceQuestion, across, cut, device_overhead,
    grouped, grouped_at, growing, held_over_time, is_small, line_of, live_lines, overhead_over_time,
    place_of, step_starts,
};
pub use watch::{Moments, TakenLine, Watched, WatchedStep, watch};
