//! Memory shared by `cuIpcGetMemHandle`, within this process.
//!
//! An opened handle gets its own addresses, which alias the other block. Once that block is freed, they are invalid.

use makeroom_simcard::PAGE;

use super::{Block, BlockKind, ContextId, Machine};
use crate::status::{Result, Status};

impl Machine {
    /// The start of a block that can be shared. Virtual and stream-ordered memory cannot.
    pub fn exchangeable(&self, address: u64) -> Result<u64> {
        let (start, block) = self.block_at(address).ok_or(Status::INVALID_VALUE)?;
        if block.kind == BlockKind::Linear { Ok(start) } else { Err(Status::INVALID_VALUE) }
    }

    /// `cuIpcOpenMemHandle`.
    pub fn open_import(&mut self, context: ContextId, original: u64) -> Result<u64> {
        self.context(context)?;
        let block = *self.blocks.get(&original).ok_or(Status::INVALID_VALUE)?;
        let bytes = block.bytes.next_multiple_of(PAGE);
        let address = self.space.take(bytes).ok_or(Status::OUT_OF_MEMORY)?;
        self.blocks.insert(address, Block { context, kind: BlockKind::Imported(original), ..block });
        Ok(address)
    }

    /// `cuIpcCloseMemHandle`.
    pub fn close_import(&mut self, address: u64) -> Result<()> {
        match self.blocks.get(&address) {
            Some(Block { kind: BlockKind::Imported(_), bytes, .. }) => {
                let bytes = *bytes;
                self.forget_import(address, bytes);
                Ok(())
            }
            _ => Err(Status::INVALID_VALUE),
        }
    }

    pub(super) fn forget_import(&mut self, address: u64, bytes: u64) {
        self.blocks.remove(&address);
        self.space.insert(address, bytes.next_multiple_of(PAGE));
    }

    /// Resolves an address: in an imported block, to the address in the original.
    pub(super) fn origin(&self, address: u64) -> Result<u64> {
        match self.block_at(address) {
            Some((start, Block { kind: BlockKind::Imported(original), bytes, .. })) => {
                let lives = self.blocks.get(&original).is_some_and(|block| block.bytes == bytes);
                if lives { Ok(original + (address - start)) } else { Err(Status::INVALID_VALUE) }
            }
            _ => Ok(address),
        }
    }
}
