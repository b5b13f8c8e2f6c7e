//! Memory from `cuMemAlloc` and similar functions.
//!
//! A block below 2 MiB shares pages with other small blocks of its context; a larger one has its own pages. Small
//! blocks never span two pages, so one live block of 512 bytes holds 2 MiB: the GPU fragments as real ones do.

use makeroom_ordered::OrderedMap;
use makeroom_simcard::PAGE;

use super::{ContextId, GRAIN, Machine, PoolId};
use crate::status::{Result, Status};

/// Memory with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Requested bytes; only these may be accessed.
    pub bytes: u64,
    /// The context it was allocated in.
    pub context: ContextId,
    /// The card.
    pub device: usize,
    /// How it was allocated, which determines how it is freed.
    pub kind: BlockKind,
}

/// How a block was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Linear,
    /// Stream-ordered, from a pool.
    Ordered(PoolId),
    /// A graph's allocation.
    Graph,
    /// An array's elements; not freed by address.
    Array,
    /// A module's code; not freed by address.
    Code,
    /// An alias of another block, opened with an IPC handle: that block's address.
    Imported(u64),
}

/// A linear block whose free is pending on a stream.
#[derive(Debug)]
pub(super) struct Deferred {
    at: u64,
    address: u64,
    block: Block,
}

impl Machine {
    /// The block that contains an address, with its start.
    pub fn block_at(&self, address: u64) -> Option<(u64, Block)> {
        let (start, block) = self.blocks.range(..=address).next_back()?;
        (address < start + block.bytes).then_some((*start, *block))
    }

    /// All blocks by address.
    pub fn blocks(&self) -> &OrderedMap<u64, Block> {
        &self.blocks
    }

    /// `cuMemAlloc`.
    pub fn allocate(&mut self, context: ContextId, bytes: u64) -> Result<u64> {
        self.allocate_as(context, bytes, BlockKind::Linear)
    }

    pub(super) fn allocate_as(&mut self, context: ContextId, bytes: u64, kind: BlockKind) -> Result<u64> {
        if bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let device = self.context(context)?.device;
        let address = if bytes < PAGE {
            self.allocate_small(context, device, bytes.next_multiple_of(GRAIN))?
        } else {
            self.map_pages(device, bytes.div_ceil(PAGE))?
        };
        self.blocks.insert(address, Block { bytes, context, device, kind });
        Ok(address)
    }

    fn allocate_small(&mut self, context: ContextId, device: usize, size: u64) -> Result<u64> {
        if let Some(address) = self.context_mut(context)?.heap.take(size) {
            return Ok(address);
        }
        let page = self.map_pages(device, 1)?;
        if size < PAGE {
            self.context_mut(context)?.heap.insert(page + size, PAGE - size);
        }
        Ok(page)
    }

    /// `cuMemAllocPitch`: rows start at multiples of the GPU's pitch. Returns the address and the pitch.
    pub fn allocate_pitched(
        &mut self,
        context: ContextId,
        width: u64,
        height: u64,
        element: u32,
    ) -> Result<(u64, u64)> {
        if width == 0 || height == 0 || ![4, 8, 16].contains(&element) {
            return Err(Status::INVALID_VALUE);
        }
        let pitch = width.checked_next_multiple_of(GRAIN).ok_or(Status::OUT_OF_MEMORY)?;
        let bytes = pitch.checked_mul(height).ok_or(Status::OUT_OF_MEMORY)?;
        Ok((self.allocate(context, bytes)?, pitch))
    }

    /// `cuMemFree`: synchronizes with the GPU unless the memory is stream-ordered. A null address is ignored.
    pub fn free(&mut self, address: u64) -> Result<()> {
        if address == 0 || self.free_external(address)? {
            return Ok(());
        }
        if self.is_imported_ordered(address) {
            return self.close_import(address);
        }
        let block = *self.blocks.get(&address).ok_or(Status::INVALID_VALUE)?;
        match block.kind {
            BlockKind::Linear => {
                self.advance_to(self.device_busy_until(block.device));
                self.blocks.remove(&address);
                self.free_linear(address, block);
                Ok(())
            }
            BlockKind::Ordered(pool) => {
                self.blocks.remove(&address);
                self.free_ordered(pool, address, block.bytes, None)
            }
            BlockKind::Graph => {
                self.blocks.remove(&address);
                self.retire_graph_ranges();
                Ok(())
            }
            BlockKind::Array | BlockKind::Code | BlockKind::Imported(_) => Err(Status::INVALID_VALUE),
        }
    }

    /// Frees a linear block on a stream: its address becomes invalid immediately, and its memory is freed when the
    /// stream reaches the free.
    pub(super) fn free_linear_at(&mut self, address: u64, block: Block, at: u64) {
        self.blocks.remove(&address);
        if at <= self.now {
            self.free_linear(address, block);
        } else {
            self.deferred.push(Deferred { at, address, block });
        }
    }

    /// Frees the deferred blocks that are due.
    pub(super) fn settle_deferred(&mut self) {
        let now = self.now;
        let due: Vec<_> = self.deferred.extract_if(.., |deferred| deferred.at <= now).collect();
        for deferred in due {
            self.free_linear(deferred.address, deferred.block);
        }
    }

    /// Frees a context's deferred blocks immediately, because the context ends.
    pub(super) fn settle_deferred_of(&mut self, context: ContextId) {
        let due: Vec<_> =
            self.deferred.extract_if(.., |deferred| deferred.block.context == context).collect();
        for deferred in due {
            self.free_linear(deferred.address, deferred.block);
        }
    }

    /// Frees the memory of a block that was removed from the list.
    pub(super) fn free_linear(&mut self, address: u64, block: Block) {
        if block.bytes >= PAGE {
            return self.unmap_pages(address);
        }
        let Some(context) = self.contexts.get_mut(&block.context) else { return };
        let hole = context.heap.insert(address, block.bytes.next_multiple_of(GRAIN));
        if hole.1 == PAGE {
            context.heap.take_at(hole.0, PAGE);
            self.unmap_pages(hole.0);
        }
    }
}
