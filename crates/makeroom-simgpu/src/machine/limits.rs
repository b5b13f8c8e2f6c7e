//! The limits of a context, and the memory they need.
//!
//! Measured on an H200: a larger stack is allocated immediately, for every thread that the GPU can hold; the device
//! heap and the printf buffer need no memory when they are set. Here, they are allocated at the context's next kernel
//! launch, which fails if there is not enough memory.

use makeroom_simcard::PAGE;

use super::{ContextId, Machine};
use crate::status::{Result, Status};

/// Threads that the GPU can hold: 132 multiprocessors of 2048.
const RESIDENT_THREADS: u64 = 132 * 2048;
/// The device heap is limited to this fraction of the GPU.
const HEAP_SHARE: u64 = 8;

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Stack size per thread, in bytes.
    Stack,
    /// Size of the printf buffer, in bytes.
    Printf,
    /// Size of the device heap, in bytes.
    Heap,
    /// Maximum number of pending launches from kernels.
    PendingLaunches,
    /// L2 fetch granularity, a hint.
    FetchGranularity,
    /// Persisting L2 cache, in bytes.
    PersistingCache,
}

impl Limit {
    /// The limit with this number.
    pub fn from_number(number: u32) -> Result<Self> {
        Ok(match number {
            0 => Self::Stack,
            1 => Self::Printf,
            2 => Self::Heap,
            3 => return Err(Status::UNSUPPORTED_LIMIT),
            4 => Self::PendingLaunches,
            5 => Self::FetchGranularity,
            6 => Self::PersistingCache,
            _ => return Err(Status::INVALID_VALUE),
        })
    }
}

/// The limits of one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    values: [u64; 6],
    /// Heap and printf buffer as of the last kernel launch.
    committed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        let values = [1 << 10, 8_650_752, 8 << 20, 2048, 64, 0];
        Self { values, committed: values[Limit::Printf as usize] + values[Limit::Heap as usize] }
    }
}

impl Limits {
    fn get(self, limit: Limit) -> u64 {
        self.values[limit as usize]
    }

    /// Pages that these limits need in addition to those of a new context.
    fn pages(self) -> u64 {
        let first = Self::default();
        let stack = (self.get(Limit::Stack).saturating_sub(first.get(Limit::Stack)))
            .saturating_mul(RESIDENT_THREADS)
            .div_ceil(PAGE);
        stack + self.committed.saturating_sub(first.committed).div_ceil(PAGE)
    }
}

impl Machine {
    /// `cuCtxGetLimit`.
    pub fn limit(&self, context: ContextId, limit: Limit) -> Result<u64> {
        Ok(self.context(context)?.limits.get(limit))
    }

    /// `cuCtxSetLimit`.
    pub fn set_limit(&mut self, context: ContextId, limit: Limit, value: u64) -> Result<()> {
        let most = self.description.memory / HEAP_SHARE;
        let mut limits = self.context(context)?.limits;
        let bounded = matches!(limit, Limit::Heap | Limit::Printf);
        limits.values[limit as usize] = if bounded { value.min(most) } else { value };
        self.apply_limits(context, limits)
    }

    /// Allocates the heap and the printf buffer before a kernel runs.
    pub(super) fn commit_limits(&mut self, context: ContextId) -> Result<()> {
        let mut limits = self.context(context)?.limits;
        let wanted = limits.get(Limit::Heap) + limits.get(Limit::Printf);
        if wanted <= limits.committed {
            return Ok(());
        }
        limits.committed = wanted;
        self.apply_limits(context, limits)
    }

    fn apply_limits(&mut self, context: ContextId, limits: Limits) -> Result<()> {
        let held = self.context(context)?.limit_frames.len() as u64;
        let device = self.context(context)?.device;
        let wanted = limits.pages();
        if wanted > held {
            let more = self.take_frames(device, wanted - held)?;
            self.context_mut(context)?.limit_frames.extend(more);
        } else {
            let fewer = self.context_mut(context)?.limit_frames.split_off(wanted as usize);
            self.give_frames(device, &fewer);
        }
        self.context_mut(context)?.limits = limits;
        Ok(())
    }
}
