//! The device as the pool's policy sees it: physical handles, virtual addresses, and the GPU's progress.
//!
//! The policy makes these calls synchronously and never touches memory, a context or an event. The runtime implements
//! them with driver calls, the simulator with measured costs, and tests with a failure at the n-th call. Any call may
//! fail, and a failed call must leave everything unchanged; the policy relies on this to stay consistent.
//!
//! Progress is measured with fences. A fence covers all work submitted to a stream before the fence was created, and the
//! fences of one stream are ordered. The policy requests a fence only before memory moves between streams or is unmapped,
//! and occasionally after many frees. Reusing memory on its own stream therefore never costs an event.

use makeroom_core::{Address, StreamId};

/// Granularity of handles: the driver's page size. Sizes and addresses of mappings are multiples of it.
pub const PAGE: u64 = 2 << 20;

/// A piece of physical memory, identified by the backing. Always mapped and unmapped as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// A point in the order of one stream. Later fences of a stream are larger; fences of different streams are not
/// comparable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl Fence {
    /// Always passed. The backing's own fences start above it.
    pub const BEGINNING: Self = Self(0);
}

/// A handle and its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The handle.
    pub handle: Handle,
    /// Its size in bytes, a multiple of [`PAGE`].
    pub size: u64,
}

/// The call failed and changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device call failed")]
pub struct Refused;

/// Whether a call may wait for the GPU, and for how long. The GPU itself can be waiting for the calling thread, so
/// every wait has a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timeout {
    /// Do not wait; use only what the GPU has already finished.
    DoNotWait,
    /// Wait briefly: there is an alternative, so a long wait is not worth it.
    WaitBriefly,
    /// Wait for as long as allowed: the alternative is to fail.
    Wait,
}

/// The memory and progress of a device, as needed by a pool.
pub trait Backing {
    /// Reserves `size` bytes of virtual addresses; both size and address are multiples of [`PAGE`]. Reserved addresses
    /// use no memory and are never returned.
    fn reserve(&mut self, size: u64) -> Result<Address, Refused>;

    /// Creates a handle of `size` bytes, a multiple of [`PAGE`].
    fn create(&mut self, size: u64) -> Result<Handle, Refused>;

    /// Releases an unmapped handle. If this fails, the pool keeps the handle and uses it again.
    fn release(&mut self, piece: Piece) -> Result<(), Refused>;

    /// Maps pieces contiguously from `address` on, readable and writable, all or none: after a failure, the backing
    /// unmaps the pieces it has already mapped. A single call can set access for all of them.
    fn map(&mut self, address: Address, pieces: &[Piece]) -> Result<(), Refused>;

    /// Unmaps a piece. The policy guarantees that the GPU has finished using it.
    fn unmap(&mut self, address: Address, piece: Piece) -> Result<(), Refused>;

    /// Creates a fence after all work submitted to a stream so far. It is larger than all earlier fences of the stream.
    /// Fails if the stream was destroyed or is being captured; memory freed there then has to wait.
    fn fence(&mut self, stream: StreamId) -> Result<Fence, Refused>;

    /// The latest fence of a stream that the GPU has passed, which implies all earlier ones; [`Fence::BEGINNING`] for a
    /// stream without fences. Does not wait. It is also called for destroyed streams, whose ID may have been reused: the
    /// fences of the new stream follow and count as passed only after the earlier ones.
    fn passed(&mut self, stream: StreamId) -> Fence;

    /// Waits until the GPU has passed a fence. Fails if waiting is not allowed (during a capture), if the wait itself
    /// fails, or after the timeout. `timeout` is never [`Timeout::DoNotWait`].
    fn wait(&mut self, stream: StreamId, fence: Fence, timeout: Timeout) -> Result<(), Refused>;
}
