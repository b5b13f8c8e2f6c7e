//! Host memory that GPUs can access: pinned, registered, managed.
//!
//! `backing.rs` has the bytes; this module counts them against the host's memory and looks them up. Managed memory is
//! always on the host: no kernel runs that could migrate it, so it uses no device memory.

use makeroom_simcard::PAGE;

use super::{ContextId, Machine};
use crate::status::{Result, Status};

/// Host memory that the driver knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBlock {
    /// Requested bytes.
    pub bytes: u64,
    /// The context it was allocated in.
    pub context: ContextId,
    /// Flags of the call.
    pub flags: u32,
    /// How it was allocated.
    pub kind: HostKind,
}

/// How host memory was allocated.
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

    /// Adds host memory. It must not overlap known memory, and must fit.
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

    /// Removes host memory of this kind that starts at an address.
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
