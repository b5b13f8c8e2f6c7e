//! What goes in and what comes out: buffers with lifetimes, a plan with offsets, the outcome of planning.

use crate::budget::Stop;
use crate::conflict::Conflict;

/// Maximum number of buffers in a problem. Planning needs about 350 bytes for each.
pub const MAX_BUFFERS: usize = 10_000_000;

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
    pub peak: u64,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// A plan, within the capacity if there is one; proven to be lowest if its peak is `lower_bound`.
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
    /// More than [`MAX_BUFFERS`].
    #[error("{count} buffers are too many; the maximum is {MAX_BUFFERS}")]
    TooManyBuffers {
        /// Number of buffers.
        count: usize,
    },
    /// Offsets could exceed 64 bits.
    #[error("total size of all buffers does not fit in 62 bits")]
    TooLarge,
}
