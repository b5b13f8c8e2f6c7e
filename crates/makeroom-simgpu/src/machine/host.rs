//! Host memory that the cards can reach: pinned, registered, managed.
//!
//! The bytes are the shell's; here they are counted against what the host has, and looked up. Managed memory
//! is the host's too: no kernel runs that could pull it to a card, so it takes no device memory.

use makeroom_simcard::PAGE;

use super::{ContextId, Machine};
use crate::status::{Result, Status};

/// A stretch of host memory that the driver knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBlock {
    /// Bytes that were asked for.
    pub bytes: u64,
    /// The context that asked.
    pub context: ContextId,
    /// Flags as given.
    pub flags: u32,
    /// How it came about.
    pub kind: HostKind,
}

/// How host memory came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// `cuMemHostAlloc`.
    Pinned,
    /// `cuMemHostRegister`.
    Registered,
    /// `cuMemAllocManaged`.
    Managed,
}

impl Machine {
    /// Host bytes that can still be pinned or mapped.
    pub fn host_room(&self) -> u64 {
        let pinned = self.host_blocks.values().filter(|block| block.kind != HostKind::Managed);
        let pinned: u64 = pinned.map(|block| block.bytes).sum();
        let host = &self.frames[self.devices()];
        (host.free() * PAGE).saturating_sub(pinned)
    }

    /// Adds host memory. What overlaps known memory or does not fit is refused.
    pub fn add_host(&mut self, address: u64, block: HostBlock) -> Result<()> {
        let end = address.checked_add(block.bytes).ok_or(Status::INVALID_VALUE)?;
        let before = self.host_blocks.range(..end).next_back();
        if before.is_some_and(|(start, known)| start + known.bytes > address) {
            return Err(Status::HOST_MEMORY_ALREADY_REGISTERED);
        }
        if block.kind != HostKind::Managed && block.bytes > self.host_room() {
            return Err(Status::OUT_OF_MEMORY);
        }
        self.host_blocks.insert(address, block);
        Ok(())
    }

    /// The known host memory that contains an address.
    pub fn host_at(&self, address: u64) -> Option<(u64, HostBlock)> {
        let (start, block) = self.host_blocks.range(..=address).next_back()?;
        (address < start + block.bytes).then_some((*start, *block))
    }

    /// Removes host memory that starts at an address, if it is of that kind.
    pub fn remove_host(&mut self, address: u64, kind: HostKind) -> Option<HostBlock> {
        self.host_blocks.get(&address).filter(|block| block.kind == kind)?;
        self.host_blocks.remove(&address)
    }

    /// `cuMemHostUnregister`.
    pub fn unregister(&mut self, address: u64) -> Result<()> {
        if self.remove_host(address, HostKind::Registered).is_some() {
            return Ok(());
        }
        let inside = self.host_at(address).is_some();
        Err(if inside { Status::INVALID_VALUE } else { Status::HOST_MEMORY_NOT_REGISTERED })
    }
}
