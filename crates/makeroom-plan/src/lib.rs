//! Offline memory planning: buffers with lifetimes and sizes in, offsets out.
//!
//! Compilers and runtimes that know all buffers of a program in advance can place them in one block of memory. Buffers
//! that are live at the same time must not overlap; all others can share addresses. This crate finds offsets that need
//! little memory, or that fit a given capacity. The problem is known as *dynamic storage allocation* and is NP-hard.
//!
//! ```text
//! offset
//!   3 ┌─────┐┌─────┐         size up, time to the right; a lifetime [lower, upper) is half-open,
//!     │  b  ││  c  │         so c can reuse the memory of b when c.lower == b.upper
//!   1 ├─────┴┴─────┤
//!     │     a      │
//!   0 └────────────┘
//!     0      5     10  time
//! ```
//!
//! ```
//! use makeroom_plan::{Budget, Buffer, Outcome, Problem, plan, validate};
//!
//! let buffers = vec![Buffer::new(0, 10, 1), Buffer::new(0, 5, 2), Buffer::new(5, 10, 2)];
//! let problem = Problem { buffers, capacity: None };
//! let Outcome::Planned { plan, lower_bound } = plan(&problem, &Budget::default())? else {
//!     unreachable!("without a capacity, there is always a plan");
//! };
//! assert_eq!((plan.peak, lower_bound), (3, 3)); // proven: no plan needs less
//! assert_eq!(plan.offsets[1], plan.offsets[2]); // b and c share their memory
//! validate(&problem, &plan)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With a [capacity](Problem::capacity), the result is the first plan that fits, a proof that none does
//! ([`Outcome::Impossible`]), or the best plan so far ([`Outcome::GaveUp`]). [`plan_with`] reports progress and can be
//! cancelled. [`csv`] reads and writes the files of MiniMalloc.
//!
//! Effort is counted in steps, not seconds: the same problem, budget and seed give the same plan on every machine. A
//! [deadline](Budget::deadline) can end the work earlier; then the result depends on the machine.
//!
//! # How it works
//!
//! ```text
//! load.rs       maximum load: the lower bound        skyline.rs        a greedy plan for an order of priority
//! conflict.rs   why a problem cannot fit             lifetime_tree.rs  the best unplaced buffer for a gap
//! instance.rs   the problem in small numbers         improve.rs        better orders (squeaky wheel), bisection
//! budget.rs     steps, deadline, progress            search/           exact search with restarts and nogoods
//! validate.rs   checks a plan, independently         csv/              MiniMalloc's files
//! ```
#![forbid(unsafe_code)]

pub mod csv;

mod budget;
mod conflict;
mod improve;
mod instance;
mod lifetime_tree;
mod load;
mod problem;
mod random;
mod search;
mod skyline;
mod validate;

use std::ops::ControlFlow;

pub use budget::{Budget, Phase, Progress, Stop};
pub use conflict::{Conflict, Reason};
pub use load::{MaxLoad, max_load};
pub use problem::{Buffer, MAX_BUFFERS, Outcome, Plan, Problem, ProblemError};
pub use validate::{Violation, validate};

use budget::Meter;
use improve::{Improved, improve};
use instance::Instance;

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
    let Problem { buffers, capacity } = problem;
    if buffers.len() > MAX_BUFFERS {
        return Err(ProblemError::TooManyBuffers { count: buffers.len() });
    }
    for (index, buffer) in buffers.iter().enumerate() {
        if !buffer.alignment.is_power_of_two() {
            return Err(ProblemError::Alignment { buffer: index, alignment: buffer.alignment });
        }
    }
    let limit = capacity.unwrap_or(u64::MAX);
    if let Some(conflict) = conflict::overload(buffers, limit) {
        return Ok(Outcome::Impossible(conflict));
    }
    let instance = Instance::new(buffers).map_err(|_| ProblemError::TooLarge)?;
    let mut meter = Meter::new(budget, progress, instance.unit);
    let goal = capacity.map(|capacity| capacity / instance.unit);
    Ok(match improve(&instance, goal, budget.seed, &mut meter) {
        Improved::Found { offsets, lower_bound } => {
            let plan = instance.plan(&offsets);
            let lower_bound = lower_bound * instance.unit;
            if plan.peak > limit {
                Outcome::GaveUp { best: plan, lower_bound, stop: meter.stop() }
            } else {
                Outcome::Planned { plan, lower_bound }
            }
        }
        Improved::Refuted { buffers } => {
            let mut buffers: Vec<usize> =
                buffers.into_iter().map(|buffer| instance.original(buffer)).collect();
            buffers.sort_unstable();
            Outcome::Impossible(Conflict { buffers, capacity: limit, reason: Reason::Arrangement })
        }
    })
}

#[cfg(test)]
mod tests;
