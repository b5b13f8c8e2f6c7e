//! The physical side of the pool, as its policy sees it: handles, addresses, and how far the GPU has come.
//!
//! The policy calls it synchronously and never sees memory, a context or an event. A runtime answers with driver
//! calls, the simulator with measured costs, a test with a refusal at the n-th call. Every call may be refused, and
//! a refused call has changed nothing: that is the contract which lets the policy stay consistent.
//!
//! Time is told by marks. A mark stands for everything that was submitted to a stream before it was made, and marks
//! of one stream are ordered. The policy asks for one only when memory is to change hands between streams or be
//! unmapped, or now and then where much was freed, so memory that is used again on its stream costs no event.

use makeroom_core::{Address, StreamId};

/// The grain of handles: the driver's page. Sizes and addresses of mappings are multiples of it.
pub const PAGE: u64 = 2 << 20;

/// A piece of physical memory, as the backing names it. It is mapped and unmapped only whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// A point in the order of one stream. Later marks of a stream are larger; marks of different streams cannot be
/// compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(pub u64);

impl Mark {
    /// Before everything: a mark that has always passed. A backing's own marks begin above it.
    pub const BEGINNING: Self = Self(0);
}

/// A handle and how many bytes it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Which.
    pub handle: Handle,
    /// Its size, a multiple of [`PAGE`].
    pub size: u64,
}

/// The backing cannot do it. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device refused")]
pub struct Refused;

/// Whether a call may wait for the GPU, and how long. The GPU may itself wait for the thread that asks, so nobody
/// waits without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Patience {
    /// It takes what the GPU has passed already.
    DoNotWait,
    /// There is another way; it waits as long as that is worth.
    WaitBriefly,
    /// There is no other way but to give up.
    Wait,
}

/// Memory and time, behind a pool.
pub trait Backing {
    /// Reserves addresses: `size` bytes, both a multiple of [`PAGE`]. They cost no memory and are kept for good.
    fn reserve(&mut self, size: u64) -> Result<Address, Refused>;

    /// Makes a handle of `size` bytes, a multiple of [`PAGE`].
    fn create(&mut self, size: u64) -> Result<Handle, Refused>;

    /// Gives a handle back that is mapped nowhere. Where that is refused the pool keeps it and uses it again.
    fn release(&mut self, piece: Piece) -> Result<(), Refused>;

    /// Maps pieces one behind the other from `address` on, readable and writable, all or none of them: what was
    /// mapped before a refusal is unmapped again by the backing. One call for access can cover all of them.
    fn map(&mut self, address: Address, pieces: &[Piece]) -> Result<(), Refused>;

    /// Unmaps one piece. The policy has made sure that the GPU is done with it.
    fn unmap(&mut self, address: Address, piece: Piece) -> Result<(), Refused>;

    /// Makes a mark behind everything that was submitted to a stream so far. It is above all earlier marks of this
    /// stream. Refused where a stream is gone or being captured: then what was freed there has to wait.
    fn mark(&mut self, stream: StreamId) -> Result<Mark, Refused>;

    /// The latest mark of a stream that the GPU has passed, with all before it; [`Mark::BEGINNING`] for a stream without
    /// marks. Does not wait. A stream that is gone is asked for too, by a name that may have become another's: that
    /// one's marks follow, and count as passed only once the earlier ones have.
    fn passed(&mut self, stream: StreamId) -> Mark;

    /// Waits until the GPU has passed a mark. Refused where waiting is not allowed, as in a capture, failed, or took
    /// longer than its patience, which is one of those that wait.
    fn wait(&mut self, stream: StreamId, mark: Mark, patience: Patience) -> Result<(), Refused>;
}
