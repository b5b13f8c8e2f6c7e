//! What the pool says of itself: figures, a picture of its memory, and why it could not serve a request.

use makeroom_core::{Address, Bytes, StreamId};

use super::backing::Piece;

/// The pool in figures. `reserved = live + rounding + cached`, and `pending ≤ live`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// What programs asked for, from the allocation until its free is complete.
    pub live: u64,
    /// The part of live whose free was requested and waits for a stream.
    pub pending: u64,
    /// What blocks hold beyond what was asked for.
    pub rounding: u64,
    /// What was taken from the device: the sizes of all handles.
    pub reserved: u64,
    /// What is reserved and neither live nor rounding.
    pub cached: u64,
    /// The most that was live at once.
    pub peak_live: u64,
    /// The most that was reserved at once.
    pub peak_reserved: u64,
    /// How many blocks are live, those that are pending included.
    pub blocks: u64,
    /// How many handles there are.
    pub handles: u64,
    /// What was done, since the pool was made.
    pub done: Counters,
}

impl Stats {
    /// This pool's figures with those of another one beside it. The peaks of two pools have no sum: they stay this one's.
    #[must_use]
    pub fn beside(self, other: &Self) -> Self {
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
                marks: self.done.marks + other.done.marks,
                waits: self.done.waits + other.done.waits,
            },
            ..self
        }
    }
}

/// How often the pool turned to its backing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Allocations served.
    pub allocations: u64,
    /// Allocations refused.
    pub refusals: u64,
    /// Handles made.
    pub created: u64,
    /// Handles given back.
    pub released: u64,
    /// Handles mapped.
    pub mapped: u64,
    /// Handles unmapped.
    pub unmapped: u64,
    /// Marks made.
    pub marks: u64,
    /// Waits for the GPU.
    pub waits: u64,
}

/// A block that was handed out; the number is free for another block as soon as this one is freed. Numbers are
/// dense, so a layer above can keep what it knows of blocks in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// Memory that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// Where, a multiple of 512.
    pub address: Address,
    /// As which block.
    pub block: BlockId,
    /// How many bytes it holds: what was asked for, and rounding.
    pub size: u64,
}

/// Memory that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// Which block it was.
    pub block: BlockId,
    /// What had been asked for.
    pub requested: u64,
}

/// Who said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The pool's own limit.
    Limit,
    /// The device: no memory, no addresses, or a failed call.
    Device,
    /// The request is larger than any address range.
    TooLarge,
}

/// Why a request could not be served, with the account of the pool at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} refused by {}: {} live, {} cached (largest piece {}), {} reserved{}",
    Bytes::new(self.requested),
    match self.cause { Cause::Limit => "the pool's limit", Cause::Device => "the device", Cause::TooLarge => "the pool" },
    Bytes::new(self.stats.live),
    Bytes::new(self.stats.cached),
    Bytes::new(self.largest),
    Bytes::new(self.stats.reserved),
    self.limit.map_or(String::new(), |limit| format!(", limit {}", Bytes::new(limit)))
)]
pub struct Shortage {
    /// What was asked for.
    pub requested: u64,
    /// Who said no.
    pub cause: Cause,
    /// The most that this stream could have had without new memory.
    pub largest: u64,
    /// The limit on reserved bytes.
    pub limit: Option<u64>,
    /// The pool's figures.
    pub stats: Stats,
}

/// Why memory cannot be given back. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError {
    /// The address is not the pool's at all.
    #[error("{0} was not allocated here")]
    Foreign(Address),
    /// The address is the pool's, and no block that is in use begins there: freed twice, or inside of a block.
    #[error("no block in use begins at {0}: it was freed before, or lies inside of a block")]
    NotInUse(Address),
}

impl FreeError {
    /// The address that cannot be given back.
    pub fn address(self) -> Address {
        match self {
            Self::Foreign(address) | Self::NotInUse(address) => address,
        }
    }
}

/// What a block of a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// In use.
    Live {
        /// Its number.
        block: BlockId,
        /// What was asked for.
        requested: u64,
    },
    /// Freed, and waits for other streams that use it.
    Pending {
        /// Its number.
        block: BlockId,
        /// What was asked for.
        requested: u64,
    },
    /// Usable at once on its stream.
    Free,
}

/// A block of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Where it begins.
    pub address: Address,
    /// How many bytes it holds.
    pub size: u64,
    /// What it is.
    pub state: BlockState,
    /// The stream it was handed out or freed on; `None` for free memory that every stream may use.
    pub stream: Option<StreamId>,
}

/// A run of addresses with memory behind it, without a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentView {
    /// Where it begins.
    pub address: Address,
    /// How many bytes it has: those of its pieces, and those of its blocks.
    pub size: u64,
    /// What lies behind it, in order.
    pub pieces: Vec<Piece>,
    /// What lies in it, in order.
    pub blocks: Vec<BlockView>,
}

/// The pool's memory at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By ascending address.
    pub segments: Vec<SegmentView>,
    /// Handles that are kept and mapped nowhere.
    pub unmapped: Vec<Piece>,
}
