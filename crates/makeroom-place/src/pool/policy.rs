//! The pool: every block a handle of its own, to begin with.

use makeroom_core::{Address, FastMap, StreamId};

use super::backing::{Backing, PAGE, Piece};
use super::report::{
    Allocated, BlockId, BlockState, BlockView, Cause, FreeError, Freed, SegmentView, Shortage, Snapshot,
    Stats,
};

/// How a pool is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The most that may be reserved; `None`: what the device gives.
    pub limit: Option<u64>,
}

/// Whether a call may wait for the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It may.
    Wait,
    /// It takes what the GPU has passed already.
    DoNotWait,
}

/// A block in use.
#[derive(Clone, Copy, Debug)]
struct Block {
    piece: Piece,
    requested: u64,
    stream: StreamId,
    number: BlockId,
}

/// A pool of device memory on one device.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    settings: Settings,
    blocks: FastMap<u64, Block>,
    next: u32,
    stats: Stats,
}

impl Policy {
    /// A pool that holds nothing.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Changes the limit on reserved bytes. What is above it already stays until it is trimmed.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        self.settings.limit = limit;
    }

    /// Hands out memory for use on a stream. Nothing is as good as one byte.
    pub fn allocate(
        &mut self,
        backing: &mut impl Backing,
        size: u64,
        stream: StreamId,
    ) -> Result<Allocated, Box<Shortage>> {
        let rounded =
            size.max(1).checked_next_multiple_of(PAGE).ok_or(self.shortage(size, Cause::TooLarge))?;
        let reserved = self.stats.reserved.saturating_add(rounded);
        if self.settings.limit.is_some_and(|limit| reserved > limit) {
            return Err(self.shortage(size, Cause::Limit));
        }
        let refused = |_| self.shortage(size, Cause::Device);
        let address = backing.reserve(rounded).map_err(refused)?;
        let handle = backing.create(rounded).map_err(refused)?;
        let piece = Piece { handle, size: rounded };
        if backing.map(address, &[piece]).is_err() {
            let _ = backing.release(piece);
            return Err(self.shortage(size, Cause::Device));
        }
        let block = BlockId(self.next);
        self.next += 1;
        self.blocks.insert(address.0, Block { piece, requested: size, stream, number: block });
        self.stats.live += size;
        self.stats.rounding += rounded - size;
        self.stats.reserved = reserved;
        Ok(Allocated { address, block, size: rounded })
    }

    /// Another stream uses a block: after its free it waits until the GPU has passed what that stream was given
    /// until then.
    pub fn record_stream(&mut self, address: Address, stream: StreamId) -> Result<(), FreeError> {
        let block = self.blocks.get_mut(&address.0).ok_or(FreeError::NotInUse(address))?;
        block.stream = stream;
        Ok(())
    }

    /// Takes memory back. It is usable at once by what is submitted to `stream` from now on.
    pub fn free(
        &mut self,
        backing: &mut impl Backing,
        address: Address,
        stream: StreamId,
    ) -> Result<Freed, FreeError> {
        if let Ok(mark) = backing.mark(stream) {
            let _ = backing.wait(stream, mark);
        }
        self.free_idle(backing, address)
    }

    /// Takes memory back that the GPU is done with on every stream, as the caller knows: usable at once by all.
    pub fn free_idle(&mut self, backing: &mut impl Backing, address: Address) -> Result<Freed, FreeError> {
        let block = self.blocks.remove(&address.0).ok_or(FreeError::NotInUse(address))?;
        if backing.unmap(address, block.piece).is_ok() && backing.release(block.piece).is_ok() {
            self.stats.reserved -= block.piece.size;
        }
        self.stats.live -= block.requested;
        self.stats.rounding -= block.piece.size - block.requested;
        Ok(Freed { block: block.number, requested: block.requested })
    }

    /// A stream is about to be destroyed: what was freed on it becomes usable by all once the GPU has passed.
    pub fn retire_stream(&mut self, _backing: &mut impl Backing, _stream: StreamId) {}

    /// Takes back what waits for streams and whose streams the GPU has passed.
    pub fn collect(&mut self, _backing: &mut impl Backing, _patience: Patience) {}

    /// Gives unused memory back to the device until at most `keep` bytes are reserved; how many bytes went back.
    pub fn trim(&mut self, _backing: &mut impl Backing, _keep: u64, _patience: Patience) -> u64 {
        0
    }

    /// The block that begins at an address and is in use, with what was asked for.
    pub fn block_at(&self, address: Address) -> Option<(BlockId, u64)> {
        self.blocks.get(&address.0).map(|block| (block.number, block.requested))
    }

    /// The pool in figures.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Begins the peaks anew from what is there now.
    pub fn reset_peaks(&mut self) {
        self.stats.peak_live = self.stats.live;
        self.stats.peak_reserved = self.stats.reserved;
    }

    /// A picture of the pool's memory.
    pub fn snapshot(&self) -> Snapshot {
        let mut segments: Vec<SegmentView> = Vec::new();
        for (&address, block) in &self.blocks {
            let address = Address(address);
            let state = BlockState::Live { block: block.number, requested: block.requested };
            let view = BlockView { address, size: block.piece.size, state, stream: Some(block.stream) };
            let (size, pieces) = (block.piece.size, vec![block.piece]);
            segments.push(SegmentView { address, size, pieces, blocks: vec![view] });
        }
        segments.sort_unstable_by_key(|segment| segment.address);
        Snapshot { segments, unmapped: Vec::new() }
    }

    fn shortage(&self, requested: u64, cause: Cause) -> Box<Shortage> {
        Box::new(Shortage { requested, cause, largest: 0, limit: self.settings.limit, stats: self.stats })
    }
}
