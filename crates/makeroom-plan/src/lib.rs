//! The offline memory planner: assigns offsets to buffers with known lifetimes and sizes, so that buffers live at the
//! same time do not overlap and the total memory is minimal, or fits a capacity.
//!
//! ```text
//! offset
//!   3 ┌─────┐┌─────┐         size up, time to the right; a lifetime [lower, upper) is half-open,
//!     │  b  ││  c  │         so c may reuse the place of b when c.lower == b.upper
//!   1 ├─────┴┴─────┤
//!     │     a      │
//!   0 └────────────┘
//!     0      5     10  time
//! ```
//!
//! The parts, in the order in which [`plan`] uses them: [`load`] computes the lower bound; `infeasible` explains why a
//! problem cannot fit; `greedy` makes a plan from an order of priority in about `O(n log n)`; `improve` finds better
//! orders; `search` searches for a plan exactly and can prove that there is none; [`validate`](mod@validate) checks a
//! plan independently of the planner; [`csv`] reads problems.
//!
//! Effort is counted in steps, not seconds: the same problem, budget and seed give the same plan on every machine. A
//! deadline can end the work earlier; then the result depends on the machine.
//!
//! ```
//! use makeroom_plan::{Budget, Buffer, Outcome, Problem, plan};
//!
//! let buffers = vec![Buffer::new(0, 10, 1), Buffer::new(0, 5, 2), Buffer::new(5, 10, 2)];
//! let problem = Problem { buffers, capacity: None };
//! let Ok(Outcome::Planned { plan, lower_bound }) = plan(&problem, &Budget::default()) else { panic!() };
//! assert_eq!((plan.height, lower_bound), (3, 3));
//! ```
#![forbid(unsafe_code)]

pub mod csv;
pub mod load;
pub mod validate;

mod contained;
mod greedy;
mod improve;
mod infeasible;
mod instance;
mod meter;
mod random;
mod search;

use std::ops::ControlFlow;
use std::time::Instant;

pub use infeasible::{Conflict, Reason};
pub use meter::{Phase, Progress, Stop};

use improve::{Improved, improve};
use instance::Instance;
use meter::Meter;

/// Memory that is needed from `lower` to just before `upper`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// Start of its lifetime.
    pub lower: u64,
    /// End of its lifetime, exclusive. At or below `lower`: never live, and at offset 0.
    pub upper: u64,
    /// Bytes. An empty buffer gets offset 0.
    pub size: u64,
    /// Its offset must be a multiple of this power of two; 1 for no constraint.
    pub alignment: u64,
}

impl Buffer {
    /// A buffer without alignment.
    pub fn new(lower: u64, upper: u64, size: u64) -> Self {
        Self { lower, upper, size, alignment: 1 }
    }

    /// The same buffer with an alignment.
    #[must_use]
    pub fn aligned(self, alignment: u64) -> Self {
        Self { alignment, ..self }
    }

    /// Whether it never uses memory: zero bytes, or an empty lifetime.
    pub fn is_empty(&self) -> bool {
        self.size == 0 || self.lower >= self.upper
    }
}

/// The buffers to place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problem {
    /// The buffers; plans and conflicts refer to them by index.
    pub buffers: Vec<Buffer>,
    /// With a capacity, the first plan within it is the result; without one, the lowest plan found.
    pub capacity: Option<u64>,
}

/// An offset for each buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// In the order of the problem's buffers.
    pub offsets: Vec<u64>,
    /// The maximum `offset + size` of all buffers that are not empty.
    pub height: u64,
}

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

/// The result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// A plan, within the capacity if there is one; proven to be lowest if its height is `lower_bound`.
    Planned {
        /// The plan.
        plan: Plan,
        /// No plan is lower than this.
        lower_bound: u64,
    },
    /// Proven: no plan fits the capacity.
    Impossible(Conflict),
    /// No plan within the capacity was found, and none was ruled out.
    GaveUp {
        /// The lowest plan found; higher than the capacity.
        best: Plan,
        /// No plan is lower than this.
        lower_bound: u64,
        /// Why the search ended.
        stop: Stop,
    },
}

/// An invalid problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// An alignment is not a power of two.
    #[error("alignment of buffer {buffer} is not a power of two: {alignment}")]
    Alignment {
        /// Position of the buffer.
        buffer: usize,
        /// Its alignment.
        alignment: u64,
    },
    /// Offsets could exceed 64 bits.
    #[error("total size of all buffers does not fit in 62 bits")]
    TooLarge,
}

/// Finds a plan. See [`plan_with`] for progress and cancellation.
pub fn plan(problem: &Problem, budget: &Budget) -> Result<Outcome, ProblemError> {
    plan_with(problem, budget, &mut |_| ControlFlow::Continue(()))
}

/// Finds a plan. Calls `progress` from time to time, and stops when it returns `Break`.
///
/// Without a capacity, the work continues until the plan is proven to be lowest or the budget is used up, and the
/// result is the best plan. With a capacity, it continues until a plan fits, none can, or the budget is used up.
pub fn plan_with(
    problem: &Problem,
    budget: &Budget,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Outcome, ProblemError> {
    for (index, buffer) in problem.buffers.iter().enumerate() {
        if !buffer.alignment.is_power_of_two() {
            return Err(ProblemError::Alignment { buffer: index, alignment: buffer.alignment });
        }
    }
    if let Some(conflict) = infeasible::overload(&problem.buffers, problem.capacity.unwrap_or(u64::MAX)) {
        return Ok(Outcome::Impossible(conflict));
    }
    let instance = Instance::new(&problem.buffers).map_err(|_| ProblemError::TooLarge)?;
    let mut meter = Meter::new(budget, progress, instance.unit);
    let capacity = problem.capacity.map(|capacity| capacity / instance.unit);
    let improved = improve(&instance, capacity, budget.seed, &mut meter);
    Ok(match improved {
        Improved::Found { offsets, lower_bound } => {
            let plan = instance.plan(&offsets);
            let lower_bound = lower_bound * instance.unit;
            match problem.capacity {
                Some(capacity) if plan.height > capacity => {
                    Outcome::GaveUp { best: plan, lower_bound, stop: meter.stop() }
                }
                _ => Outcome::Planned { plan, lower_bound },
            }
        }
        Improved::Refuted { buffers } => {
            let capacity = problem.capacity.unwrap_or(u64::MAX);
            let members = buffers.into_iter().map(|buffer| instance.original(buffer)).collect();
            Outcome::Impossible(infeasible::narrow(&problem.buffers, members, capacity, &mut meter))
        }
    })
}

#[cfg(test)]
mod tests;
