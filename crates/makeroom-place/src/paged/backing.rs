//! The device as the policy of pages sees it.
//!
//! Any call may fail, and a failed call must leave everything unchanged.

use std::time::Duration;

use crate::pool::{Handle, Piece, Refused, Timeout};

/// A point in the order of all work submitted to a device, on any stream. Later marks are larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(pub u64);

/// The memory and progress of a device, as needed for pages.
pub trait PageBacking {
    /// Creates a handle of `size` bytes in the device's memory.
    fn create(&mut self, size: u64) -> Result<Handle, Refused>;

    /// Creates a handle of `size` bytes in host memory.
    fn create_on_host(&mut self, size: u64) -> Result<Handle, Refused>;

    /// Releases a handle that is not mapped.
    fn release(&mut self, piece: Piece) -> Result<(), Refused>;

    /// Maps a handle at an address, readable and writable.
    fn map(&mut self, address: u64, piece: Piece) -> Result<(), Refused>;

    /// Unmaps a handle. The policy guarantees that the GPU has finished using it.
    fn unmap(&mut self, address: u64, piece: Piece) -> Result<(), Refused>;

    /// Starts to copy the contents of mapped handles into `whole`, which is not mapped yet, at their distances from
    /// `address`. Does not wait. All other work on the device has finished.
    fn begin_copy(&mut self, _address: u64, _whole: Piece, _parts: &[(u64, Piece)]) -> Result<(), Refused> {
        Err(Refused)
    }

    /// Ends a copy into `whole`. If its work has not finished, neither the handle nor its contents may be used again.
    fn end_copy(&mut self, _whole: Piece, _is_finished: bool) -> Result<(), Refused> {
        Err(Refused)
    }

    /// Maps `whole`, which has the contents of the parts, in their place. The parts are not released.
    fn replace(&mut self, _address: u64, _whole: Piece, _parts: &[(u64, Piece)]) -> Result<(), Refused> {
        Err(Refused)
    }

    /// A mark after all work submitted so far. Does not wait.
    fn mark(&mut self) -> Mark;

    /// The latest mark up to which all work is known to have finished. Does not wait.
    fn passed(&mut self) -> Mark;

    /// Whether all work before a mark has finished, or does within this time. The caller keeps its lock meanwhile.
    fn passes_within(&mut self, mark: Mark, _time: Duration) -> bool {
        self.passed() >= mark
    }
}

/// A device on which the caller may wait while it has the policy to itself, as in a simulation.
pub trait Waiting: PageBacking {
    /// Waits until all work before a mark has finished. Fails if waiting is not allowed (during a capture) or after the
    /// timeout, which is never [`Timeout::DoNotWait`].
    fn wait(&mut self, mark: Mark, timeout: Timeout) -> Result<(), Refused>;
}
