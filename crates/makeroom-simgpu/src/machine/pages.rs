//! Whole pages: allocating and mapping them, and finding the frame behind an address.

use makeroom_simcard::PAGE;

use super::Machine;
use crate::status::{Result, Status};

/// Contiguous pages in the address space, and the frames behind them.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) device: usize,
    pub(super) frames: Vec<u32>,
}

impl Region {
    pub(super) fn bytes(&self) -> u64 {
        self.frames.len() as u64 * PAGE
    }
}

/// Contiguous bytes in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Owner of the frame: a GPU, or the host after the last GPU.
    pub owner: usize,
    /// The frame.
    pub frame: u32,
    /// Offset in the frame.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Machine {
    /// Allocates frames of a GPU, counted in the ledger.
    pub(super) fn take_frames(&mut self, device: usize, pages: u64) -> Result<Vec<u32>> {
        if !self.member.take(device, pages) {
            return Err(Status::OUT_OF_MEMORY);
        }
        self.frames[device].take(pages).ok_or_else(|| {
            self.member.give(device, pages);
            Status::OUT_OF_MEMORY
        })
    }

    /// Frees frames of a GPU or of the host.
    pub(super) fn give_frames(&mut self, owner: usize, frames: &[u32]) {
        let mut discarded = Vec::new();
        self.frames[owner].give(frames, &mut discarded);
        self.discarded.extend(discarded.into_iter().map(|frame| (owner, frame)));
        if owner < self.description.devices {
            self.member.give(owner, frames.len() as u64);
        }
    }

    /// Allocates pages of a GPU and maps them.
    pub(super) fn map_pages(&mut self, device: usize, pages: u64) -> Result<u64> {
        let frames = self.take_frames(device, pages)?;
        let Some(address) = self.space.take(pages * PAGE) else {
            self.give_frames(device, &frames);
            return Err(Status::OUT_OF_MEMORY);
        };
        self.regions.insert(address, Region { device, frames });
        Ok(address)
    }

    /// Frees the pages of a region; its addresses stay reserved.
    pub(super) fn release_region(&mut self, address: u64) -> u64 {
        let Some(region) = self.regions.remove(&address) else { return 0 };
        self.give_frames(region.device, &region.frames);
        region.bytes()
    }

    /// Frees the pages and the addresses of a region.
    pub(super) fn unmap_pages(&mut self, address: u64) {
        let bytes = self.release_region(address);
        if bytes > 0 {
            self.space.insert(address, bytes);
        }
    }

    /// The region that contains an address, with its start.
    fn region_at(&self, address: u64) -> Option<(u64, &Region)> {
        let (start, region) = self.regions.range(..=address).next_back()?;
        (address < start + region.bytes()).then_some((*start, region))
    }

    /// The location of the bytes at a device address. They must all be in one block, or in mappings that `device` may
    /// access; anything else is an invalid value.
    pub fn pieces(&mut self, address: u64, bytes: u64, device: usize, write: bool) -> Result<Vec<Piece>> {
        let end = address.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        let block = self.block_at(address);
        let (mut at, end) = match block {
            Some((start, block)) if end > start + block.bytes => return Err(Status::INVALID_VALUE),
            Some(_) => self.origin(address).map(|moved| (moved, moved + bytes))?,
            None => (address, end),
        };
        let mut pieces = Vec::new();
        while at < end {
            let found = match block {
                Some(_) => self.region_at(at).map(|(start, region)| (start, region.device, &region.frames)),
                None => self.mapped_frames(at, device, write),
            };
            let (start, owner, frames) = found.ok_or(Status::INVALID_VALUE)?;
            let offset = (at - start) % PAGE;
            let frame = *frames.get(((at - start) / PAGE) as usize).ok_or(Status::INVALID_VALUE)?;
            let length = (PAGE - offset).min(end - at);
            if write {
                self.frames[owner].mark_written(frame);
            }
            pieces.push(Piece { owner, frame, offset, bytes: length });
            at += length;
        }
        Ok(pieces)
    }
}
