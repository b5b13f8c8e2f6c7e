//! One answer for a job of many ranks.
//!
//! ```text
//! summarize/   one recording in, rows of a few small tables out (the map)
//! tables.rs    the rows;  stop.rs  those of jobs that a scheduler ended
//! answer/      the rows of all recordings in, one report out (the reduce)
//! report.rs    the report, as data; `makeroom-report` renders it
//! ```
//!
//! A recording is read once, summarized and dropped, so that memory depends on the number of recordings and not on
//! their length. Rows are plain structs that can be written to a file or sent to another machine. Nothing here reads
//! files or prints.
//!
//! The answer does not depend on the order of the recordings, nor on the clocks of different hosts: times are compared
//! only within a host, or as the time since a recording began.
#![forbid(unsafe_code)]

mod answer;
mod report;
mod stop;
mod summarize;
mod tables;

pub use answer::answer;
pub use report::{
    Account, AccountLine, CardUse, Consequence, ConsequenceKind, Group, HostUse, Imbalance, ImbalancePoint,
    JobCause, JobFix, JobReport, JobVerdict, LineDifference, LogConflict, Outlier, RankError, RankFate,
    RankFinding, RankReport, Used,
};
pub use summarize::{LogReader, Source, summarize};
pub use tables::{
    Collective, DeviceRow, End, FailureKind, FailureRow, KilledProcess, RecordingKind, RecordingRow, Rows,
    SeriesRow, SiteRow, StepRow, StopReason, StopRow, Unread,
};
