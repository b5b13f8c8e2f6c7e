//! Inputs and results of a plan.

use makeroom_core::Bytes;

use crate::budget::Budget;
use crate::probe::Probe;
use crate::scaled::Scaled;

/// Bounds set by the caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The first batch to run.
    pub first: u64,
    /// The largest batch to consider.
    pub most: u64,
    /// Batches are multiples of this.
    pub multiple: u64,
    /// Maximum number of runs.
    pub runs: usize,
    /// Memory of the target GPU [default: the GPU of the runs].
    pub card: Option<Bytes>,
    /// Memory to keep free, as a share of the GPU [default: depends on the laws].
    pub margin: Option<f64>,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub enum RunOutcome {
    /// It completed its steps.
    Ran(Box<Probe>),
    /// It ran out of memory; with its recording up to then.
    Refused(Option<Box<Probe>>),
}

/// The next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run this batch for information.
    Probe(u64),
    /// Run this batch to confirm that it is the answer.
    Confirm(u64),
    /// Stop.
    Stop(Stop),
}

/// Why to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// This batch ran, and no larger one is predicted to fit.
    Found(u64),
    /// No runs are left: one batch ran, and a larger one is predicted that was not tried.
    OutOfRuns {
        /// The largest batch that ran.
        ran: u64,
        /// The predicted batch.
        predicted: u64,
    },
    /// This batch is predicted for a GPU that is larger than the local one.
    Predicted(u64),
    /// Memory does not depend on the batch.
    NothingGrows,
    /// Memory changes with the batch, but no allocation's size does: their number changes.
    NoLaw,
    /// Every batch that was tried ran out of memory.
    NothingFits,
    /// The size of the GPU is unknown.
    UnknownCard,
}

/// A prediction from the runs so far.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The largest batch that fits; `None` if none does.
    pub batch: Option<u64>,
    /// The program at any batch.
    pub scaled: Scaled,
    /// Memory available to the allocator.
    pub budget: Budget,
}
