//! What the pool reports: statistics, a snapshot of its memory, and why a request failed.

use makeroom_core::{Address, Bytes, StreamId};

use super::backing::Piece;

/// The pool's statistics. `reserved = live + rounding + cached`, and `pending ≤ live`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requested bytes, from the allocation until the free is complete.
    pub live: u64,
    /// The part of `live` that was freed but still waits for a stream.
    pub pending: u64,
    /// Bytes in blocks beyond their requested sizes.
    pub rounding: u64,
    /// Bytes taken from the device: the sizes of all handles.
    pub reserved: u64,
    /// Reserved bytes that are neither live nor rounding.
    pub cached: u64,
    /// Peak of `live`.
    pub peak_live: u64,
    /// Peak of `reserved`.
    pub peak_reserved: u64,
    /// The number of live blocks, including pending ones.
    pub blocks: u64,
    /// The number of handles.
    pub handles: u64,
    /// Operations since the pool was created.
    pub done: Counters,
}

impl Stats {
    /// The sum of two pools' statistics. Peaks cannot be added, so the result has this pool's.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            live: self.live + other.live,
            pending: self.pending + other.pending,
            rounding: self.rounding + other.rounding,
            reserved: self.reserved + other.reserved,
            cached: self.cached + other.cached,
            blocks: self.blocks + other.blocks,
            handles: self.handles + other.handles,
            done: Counters {
                allocations: self.done.allocations + other.done.allocations,
                refusals: self.done.refusals + other.done.refusals,
                created: self.done.created + other.done.created,
                released: self.done.released + other.done.released,
                mapped: self.done.mapped + other.done.mapped,
                unmapped: self.done.unmapped + other.done.unmapped,
                fences: self.done.fences + other.done.fences,
                waits: self.done.waits + other.done.waits,
            },
            ..self
        }
    }
}

/// Operations of the pool and calls to its backing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Successful allocations.
    pub allocations: u64,
    /// Failed allocations.
    pub refusals: u64,
    /// Handles created.
    pub created: u64,
    /// Handles released.
    pub released: u64,
    /// Handles mapped.
    pub mapped: u64,
    /// Handles unmapped.
    pub unmapped: u64,
    /// Fences created.
    pub fences: u64,
    /// Waits for the GPU.
    pub waits: u64,
}

/// Identifies a live block; reused after the block is freed. IDs are dense, so layers above can keep data about blocks
/// in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// An allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// Its address, a multiple of 512.
    pub address: Address,
    /// Its block.
    pub block: BlockId,
    /// Its size, including rounding.
    pub size: u64,
}

/// A completed free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// The block that was freed.
    pub block: BlockId,
    /// Its requested size.
    pub requested: u64,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The pool's own limit.
    Limit,
    /// The device: out of memory, out of addresses, or a failed call.
    Device,
    /// The request is larger than any address range.
    TooLarge,
}

/// A failed request, with the pool's statistics at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} failed: {}; {} live, {} cached (largest piece {}), {} reserved{}",
    Bytes::new(self.requested),
    match self.cause {
        Cause::Limit => "the pool's limit was reached",
        Cause::Device => "the device has no more memory",
        Cause::TooLarge => "the request is larger than the address space",
    },
    Bytes::new(self.stats.live),
    Bytes::new(self.stats.cached),
    Bytes::new(self.largest),
    Bytes::new(self.stats.reserved),
    self.limit.map_or(String::new(), |limit| format!(", limit {}", Bytes::new(limit)))
)]
pub struct Shortage {
    /// The requested size.
    pub requested: u64,
    /// Why it failed.
    pub cause: Cause,
    /// The largest block this stream could have had without new memory.
    pub largest: u64,
    /// The limit on reserved bytes.
    pub limit: Option<u64>,
    /// The pool's statistics.
    pub stats: Stats,
}

/// Why memory cannot be freed. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError {
    /// The address does not belong to the pool.
    #[error("{0} was not allocated from this pool")]
    Foreign(Address),
    /// The address belongs to the pool, but no live block starts there: a double free, or an address inside a block.
    #[error("no live block starts at {0}: it was already freed, or is inside a block")]
    NotInUse(Address),
}

impl FreeError {
    /// The address that cannot be freed.
    pub fn address(self) -> Address {
        match self {
            Self::Foreign(address) | Self::NotInUse(address) => address,
        }
    }
}

/// The state of a block in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// In use.
    Live {
        /// Its ID.
        block: BlockId,
        /// Its requested size.
        requested: u64,
    },
    /// Freed, but waiting for other streams that use it.
    Pending {
        /// Its ID.
        block: BlockId,
        /// Its requested size.
        requested: u64,
    },
    /// Immediately usable on its stream.
    Free,
}

/// A block in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Its address.
    pub address: Address,
    /// Its size in bytes.
    pub size: u64,
    /// Its state.
    pub state: BlockState,
    /// The stream it was allocated or freed on; `None` for free memory that every stream may use.
    pub stream: Option<StreamId>,
}

/// A contiguous run of mapped addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentView {
    /// Its address.
    pub address: Address,
    /// Its size in bytes, which is the sum over its pieces and also the sum over its blocks.
    pub size: u64,
    /// The physical memory behind it, in order.
    pub pieces: Vec<Piece>,
    /// The blocks in it, in order.
    pub blocks: Vec<BlockView>,
}

/// The pool's memory at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By ascending address.
    pub segments: Vec<SegmentView>,
    /// Handles that are kept but not mapped.
    pub unmapped: Vec<Piece>,
}
