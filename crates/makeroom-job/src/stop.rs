//! The row of a job that a scheduler ended: no rank of it has to have failed.

use serde::{Deserialize, Serialize};

/// A scheduler ended the job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StopRow {
    /// The log that reports it.
    pub file: String,
    /// Why.
    pub reason: StopReason,
    /// The line that reports it.
    #[serde(default)]
    pub line: Option<u64>,
}

/// Why a scheduler ended a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Its time limit.
    TimeLimit,
    /// A job of higher priority.
    Preemption,
    /// A node failed.
    NodeFailure,
    /// The scheduler queued it again.
    Requeue,
    /// A user or an administrator canceled it.
    User,
    /// It was canceled, and no reason is shown: also when a rank has failed.
    Unknown,
}
