//! What a plan is asked and what it says.

use makeroom_core::Bytes;

use crate::budget::Budget;
use crate::probe::Probe;
use crate::scaled::Scaled;

/// What the caller allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The first batch to run.
    pub first: u64,
    /// The largest batch that makes sense.
    pub most: u64,
    /// Batches are multiples of this.
    pub multiple: u64,
    /// How many runs there may be.
    pub runs: usize,
    /// The card that it is for; without it the one that the runs are made on.
    pub card: Option<Bytes>,
    /// What to keep free, as a share of the card; without it as much as the laws call for.
    pub margin: Option<f64>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub enum RunOutcome {
    /// It went through its steps.
    Ran(Box<Probe>),
    /// It was refused memory, after having asked for so much.
    Refused(Option<Box<Probe>>),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run this batch for what it tells.
    Probe(u64),
    /// Run this batch, which should be the answer.
    Confirm(u64),
    /// Nothing.
    Stop(Stop),
}

/// Why there is nothing more to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// This batch ran, and no larger one is predicted to.
    Found(u64),
    /// The runs are used up: one batch ran, and a larger one is predicted that nobody has tried.
    OutOfRuns {
        /// The largest that ran.
        ran: u64,
        /// What is predicted.
        predicted: u64,
    },
    /// This batch is predicted for a card that is larger than the one here.
    Predicted(u64),
    /// Memory does not depend on the batch.
    NothingGrows,
    /// Memory changed with the batch, and the size of no allocation did: there were more of them, or fewer.
    NoLaw,
    /// Every batch that was tried was refused.
    NothingFits,
    /// No run said how large the card is.
    UnknownCard,
}

/// What is predicted from the runs so far.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The largest batch that fits; `None` if none does.
    pub batch: Option<u64>,
    /// The program at any batch.
    pub scaled: Scaled,
    /// What the allocator may take.
    pub budget: Budget,
}
