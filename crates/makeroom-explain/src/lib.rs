//! Explains the memory of a recording: a breakdown that adds up, the cause of a failure, and fixes, as data.
//!
//! ```
//! use makeroom_core::{Action, Bytes, DeviceTrace, Event, Trace, TraceKind};
//! use makeroom_explain::{Cause, Room, TraceQuestion, explain_trace};
//!
//! let mut trace = Trace::new(TraceKind::TorchSnapshot);
//! let mut device = DeviceTrace::default();
//! device.events.push(Event::new(Action::SegmentAlloc, 1 << 30, 6 << 30));
//! device.events.push(Event::new(Action::Alloc, 1 << 30, 6 << 30));
//! device.events.push(Event::new(Action::OutOfMemory, 1 << 30, 3 << 30));
//! trace.devices.push(device);
//! let question = TraceQuestion { room: Room::Card(Bytes::gib(8)), device: None };
//! let explanation = explain_trace(&trace, &question);
//! assert_eq!(explanation.verdict.cause, Cause::LiveDataFillsDevice);
//! assert!(!explanation.causes[0].fixes.is_empty());
//! ```
//!
//! Error texts are explained by `makeroom-text`, which returns the same [`Explanation`] and shares the definitions of the
//! causes ([`thresholds`]) and the fixes that do not depend on the input ([`advice`]).
#![forbid(unsafe_code)]

pub mod advice;
pub mod batch;
mod cause;
mod explanation;
mod health;
mod ledger;
pub mod library;
mod native;
mod recording;
mod run;
pub mod thresholds;
mod trace;
mod watch;

pub use cause::{Cause, Certainty};
pub use explanation::{
    Alternative, Explanation, Finding, Fix, Growth, InputKind, InputSummary, Request, Site, Verdict, rate,
};
pub use health::{Health, HealthState, Settled, Trend, Usage};
pub use ledger::{Ledger, LedgerLine};
pub use recording::{explain_running, explain_trace};
pub use run::{
    ExpandableSummary, HostGrowth, Kept, KernelHeap, LaunchFailure, LeftContext, LeftKind, LeftSite,
    Leftover, LibraryHold, Missing, PoolSummary, RefusedContexts, RunSummary, WaitingFrees,
};
pub use trace::{
    Across, AcrossGroup, Allocation, Allocations, BlockEnds, BlockSizes, By, DeviceOverhead, Group,
    GroupGrowth, GroupNames, Grouped, Growing, GrowingLine, HeldOverTime, HeldSegment, LiveBlock, LiveLine,
    OverheadStep, Part, Places, Room, SegmentsHeld, SizesAtEnd, TraceQuestion, across, cut, device_overhead,
    explain_memory, grouped, grouped_at, growing, held_over_time, is_small, line_of, live_lines,
    overhead_over_time, place_of, step_starts,
};
pub use watch::{Moments, TakenLine, Watched, WatchedStep, watch};
