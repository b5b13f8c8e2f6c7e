//! The budget: counts steps, checks the deadline and reports progress. The only place that decides when to stop.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Instant;

/// Steps between two checks of the clock; about ten milliseconds.
const STEPS_BETWEEN_CHECKS: u64 = 2_000_000;

/// How much effort to spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Maximum number of steps (buffers and sections examined); a billion takes five to ten seconds.
    pub steps: u64,
    /// Seed for random choices.
    pub seed: u64,
    /// Stop at this time even if steps are left.
    pub deadline: Option<Instant>,
}

impl Budget {
    /// A quick first plan: well under a second for thousands of buffers.
    pub fn quick() -> Self {
        Self { steps: 100_000_000, ..Self::default() }
    }
}

impl Default for Budget {
    /// At most half a minute; most problems need milliseconds.
    fn default() -> Self {
        Self { steps: 4_000_000_000, seed: 1, deadline: None }
    }
}

/// Why the work stopped without a definite result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The step budget was exhausted.
    Steps,
    /// The deadline passed.
    Deadline,
    /// The progress callback requested it.
    Cancelled,
}

impl fmt::Display for Stop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Steps => "the step budget was used up",
            Self::Deadline => "the deadline passed",
            Self::Cancelled => "it was canceled",
        })
    }
}

/// The current phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Greedy plans from many orders.
    Greedy,
    /// Exact search.
    Search,
}

/// Progress of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The current phase.
    pub phase: Phase,
    /// Steps used so far.
    pub steps: u64,
    /// Step budget.
    pub budget: u64,
    /// Peak of the best plan so far, in bytes.
    pub best_peak: Option<u64>,
    /// Lower bound for all plans, in bytes.
    pub lower_bound: u64,
}

/// The budget and its use.
pub(crate) struct Meter<'a> {
    callback: &'a mut dyn FnMut(&Progress) -> ControlFlow<()>,
    deadline: Option<Instant>,
    progress: Progress,
    unit: u64,
    next_check: u64,
    stop: Option<Stop>,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(
        budget: &Budget,
        callback: &'a mut dyn FnMut(&Progress) -> ControlFlow<()>,
        unit: u64,
    ) -> Self {
        let progress = Progress {
            phase: Phase::Greedy,
            steps: 0,
            budget: budget.steps,
            best_peak: None,
            lower_bound: 0,
        };
        Self { callback, deadline: budget.deadline, progress, unit, next_check: 0, stop: None }
    }

    /// Sets the current phase.
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.progress.phase = phase;
    }

    /// Sets the bounds found so far, in units.
    pub(crate) fn report(&mut self, best_peak: Option<u64>, lower_bound: u64) {
        self.progress.best_peak = best_peak.map(|peak| peak.saturating_mul(self.unit));
        self.progress.lower_bound = lower_bound.saturating_mul(self.unit);
    }

    /// Steps used so far.
    pub(crate) fn spent(&self) -> u64 {
        self.progress.steps
    }

    /// Uses steps. `false`: stop now.
    pub(crate) fn spend(&mut self, steps: u64) -> bool {
        self.progress.steps = self.progress.steps.saturating_add(steps);
        if self.progress.steps >= self.next_check {
            self.check();
        }
        self.stop.is_none()
    }

    /// Whether any budget is left.
    pub(crate) fn has_budget(&self) -> bool {
        self.stop.is_none()
    }

    /// Why the work stopped; an exhausted step budget, if there is no other reason.
    pub(crate) fn stop(&self) -> Stop {
        self.stop.unwrap_or(Stop::Steps)
    }

    fn check(&mut self) {
        self.next_check = self.progress.steps.saturating_add(STEPS_BETWEEN_CHECKS).min(self.progress.budget);
        if self.stop.is_some() {
            return;
        }
        if (self.callback)(&self.progress).is_break() {
            self.stop = Some(Stop::Cancelled);
        } else if self.progress.steps >= self.progress.budget {
            self.stop = Some(Stop::Steps);
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.stop = Some(Stop::Deadline);
        }
    }
}
