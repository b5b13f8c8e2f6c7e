//! Counts steps, watches the deadline, reports progress: the one place that decides when to stop.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Instant;

use super::Budget;

/// Steps between two looks at the clock; some ten milliseconds.
const STEPS_BETWEEN_CHECKS: u64 = 2_000_000;

/// Why the work stopped before an answer was certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The steps of the budget were spent.
    Steps,
    /// The deadline passed.
    Deadline,
    /// The progress callback asked for it.
    Cancelled,
}

impl fmt::Display for Stop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Steps => "the step budget was used up",
            Self::Deadline => "the deadline passed",
            Self::Cancelled => "it was cancelled",
        })
    }
}

/// What is being tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Greedy plans from many orders.
    Greedy,
    /// Exact search.
    Search,
    /// It cannot fit; looking for a smaller set of buffers that shows it.
    Narrowing,
}

/// How far the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being tried.
    pub phase: Phase,
    /// Steps spent so far.
    pub steps: u64,
    /// Steps of the budget.
    pub budget: u64,
    /// Height of the best plan so far, in bytes.
    pub best_height: Option<u64>,
    /// No plan is lower than this, in bytes.
    pub lower_bound: u64,
}

/// The budget while it is being spent.
pub(super) struct Meter<'a> {
    callback: &'a mut dyn FnMut(&Progress) -> ControlFlow<()>,
    deadline: Option<Instant>,
    progress: Progress,
    unit: u64,
    next_check: u64,
    stop: Option<Stop>,
}

impl<'a> Meter<'a> {
    pub(super) fn new(
        budget: &Budget,
        callback: &'a mut dyn FnMut(&Progress) -> ControlFlow<()>,
        unit: u64,
    ) -> Self {
        let progress = Progress {
            phase: Phase::Greedy,
            steps: 0,
            budget: budget.steps,
            best_height: None,
            lower_bound: 0,
        };
        Self { callback, deadline: budget.deadline, progress, unit, next_check: 0, stop: None }
    }

    /// Notes what is being tried.
    pub(super) fn enter(&mut self, phase: Phase) {
        self.progress.phase = phase;
    }

    /// Notes the bounds found so far, in units.
    pub(super) fn note(&mut self, best_height: Option<u64>, lower_bound: u64) {
        self.progress.best_height = best_height.map(|height| height.saturating_mul(self.unit));
        self.progress.lower_bound = lower_bound.saturating_mul(self.unit);
    }

    /// Steps spent so far.
    pub(super) fn spent(&self) -> u64 {
        self.progress.steps
    }

    /// Spends steps. `false`: stop now.
    pub(super) fn spend(&mut self, steps: u64) -> bool {
        self.progress.steps = self.progress.steps.saturating_add(steps);
        if self.progress.steps >= self.next_check {
            self.check();
        }
        self.stop.is_none()
    }

    /// Whether there is anything left to spend.
    pub(super) fn goes_on(&self) -> bool {
        self.stop.is_none()
    }

    /// What ended the work; that the steps were spent, if nothing else did.
    pub(super) fn stop(&self) -> Stop {
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
