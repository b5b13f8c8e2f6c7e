//! Counts programs that ran out of memory, by cause, and keeps the latest ones with their processes.
//!
//! Counts start at zero with this program, for every cause: a counter that first appears with the value 1 does not look
//! like an increase to Prometheus. The processes are not part of the counters, because they come and go.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use makeroom_ordered::OrderedMap;

use crate::processes::Process;

/// How many failures are kept with their processes, and for how long.
const MOST_LATEST: usize = 64;
const LONGEST_KEPT: Duration = Duration::from_secs(3600);

/// Failures by cause.
#[derive(Clone, Debug)]
pub struct Tally {
    /// When counting began.
    pub since: SystemTime,
    /// The number of failures by cause.
    pub counts: OrderedMap<&'static str, u64>,
    latest: VecDeque<LatestFailure>,
}

/// A recent failure.
#[derive(Clone, Debug)]
pub struct LatestFailure {
    /// The process that failed.
    pub process: Process,
    /// The cause.
    pub cause: &'static str,
    /// When.
    pub at: SystemTime,
}

impl Tally {
    /// Zero for each of these causes.
    pub fn new(causes: impl IntoIterator<Item = &'static str>) -> Self {
        let counts = causes.into_iter().map(|cause| (cause, 0)).collect();
        Self { since: SystemTime::now(), counts, latest: VecDeque::new() }
    }

    /// Counts a failure.
    pub fn add(&mut self, failure: LatestFailure) {
        *self.counts.entry(failure.cause).or_default() += 1;
        self.latest.push_front(failure);
        self.latest.truncate(MOST_LATEST);
    }

    /// The failures of the last hour, newest first.
    pub fn latest(&self, now: SystemTime) -> impl Iterator<Item = &LatestFailure> {
        // A failure may be newer than the sample that it is shown with.
        let is_recent =
            move |failure: &&LatestFailure| now.duration_since(failure.at).unwrap_or_default() < LONGEST_KEPT;
        self.latest.iter().filter(is_recent)
    }
}
