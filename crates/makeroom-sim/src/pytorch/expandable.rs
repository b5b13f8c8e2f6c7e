//! Expandable segments: one address range per stream and pool, into which pages are mapped as it grows.

use super::blocks::{Block, BlockId, Use};
use super::{Pytorch, Search};
use crate::driver::{Driver, Refused};

/// PyTorch reserves 9/8 of the GPU's memory, so its holes are never too small; any large size will do.
pub(crate) const RESERVATION: u64 = 1 << 46;

impl Pytorch {
    /// The size that a block could reach if the hole after it were mapped.
    pub(super) fn potential_size(&self, id: BlockId) -> u64 {
        let block = self.blocks.get(id);
        let hole = block.next.map(|next| self.blocks.get(next)).filter(|next| !next.is_mapped);
        block.size + hole.map_or(0, |hole| hole.size)
    }

    /// Maps pages until a run of free blocks has the requested size. The block is in no set.
    pub(super) fn grow<D: Driver>(&mut self, driver: &mut D, search: &Search) -> Result<BlockId, Refused> {
        let mut candidate = match self.find_growable(search) {
            Some(candidate) => candidate,
            None => self.reserve(driver, search),
        };
        if !self.blocks.get(candidate).is_mapped {
            let size = self.blocks.get(candidate).size.min(search.size);
            self.map(driver, candidate, size)?;
        }
        // Mapping a hole merges the blocks around it into the hole's block, which becomes the new candidate.
        while self.blocks.get(candidate).size < search.size {
            let block = self.blocks.get(candidate);
            let missing = search.size - block.size;
            let Some(hole) = block.next else { return Err(Refused) };
            let size = self.blocks.get(hole).size.min(missing);
            self.map(driver, hole, size)?;
            candidate = hole;
        }
        self.blocks.take_unused(candidate);
        Ok(candidate)
    }

    /// The first hole, or free block before a hole, that is followed by enough free addresses.
    fn find_growable(&self, search: &Search) -> Option<BlockId> {
        self.blocks.holes(search.pool, search.stream).find_map(|hole| {
            let previous = self.blocks.get(hole).previous;
            let start = previous.filter(|&id| self.blocks.get(id).usage == Use::Unused).unwrap_or(hole);
            self.has_room(start, search.size).then_some(start)
        })
    }

    fn has_room(&self, start: BlockId, size: u64) -> bool {
        let mut room = 0;
        let mut next = Some(start);
        while let Some(id) = next {
            let block = self.blocks.get(id);
            if block.usage != Use::Unused {
                return false;
            }
            room += block.size;
            if room >= size {
                return true;
            }
            next = block.next;
        }
        false
    }

    fn reserve<D: Driver>(&mut self, driver: &mut D, search: &Search) -> BlockId {
        let is_small = self.blocks.pools[search.pool as usize].is_small;
        let address = driver.reserve(search.stream, is_small);
        let id = self.blocks.add(Block {
            address,
            size: RESERVATION,
            stream: search.stream,
            pool: search.pool,
            previous: None,
            next: None,
            usage: Use::Unused,
            is_mapped: false,
            is_expandable: true,
            segment: address,
            age_base: 0,
        });
        self.blocks.insert_unused(id);
        id
    }

    /// Maps at least `size` bytes at the front of a hole, in whole pages. The mapped block is in its set.
    fn map<D: Driver>(&mut self, driver: &mut D, hole: BlockId, size: u64) -> Result<(), Refused> {
        let block = *self.blocks.get(hole);
        let page = self.settings.page(self.blocks.pools[block.pool as usize].is_small);
        let size = size.checked_next_multiple_of(page).unwrap_or(size).min(block.size);
        driver.map(block.address, size, page)?;
        self.blocks.take_unused(hole);
        if size < block.size {
            let rest = self.blocks.split_off(hole, size);
            self.blocks.insert_unused(rest);
        }
        self.blocks.get_mut(hole).is_mapped = true;
        self.reserved = self.reserved.saturating_add(size);
        self.blocks.merge_neighbours(hole);
        self.blocks.insert_unused(hole);
        Ok(())
    }

    /// Unmaps the whole pages inside a free block. The remaining ends become separate blocks.
    pub(super) fn unmap<D: Driver>(&mut self, driver: &mut D, id: BlockId) {
        let block = *self.blocks.get(id);
        let page = self.settings.page(self.blocks.pools[block.pool as usize].is_small);
        // Pages are aligned to the start of the reservation.
        let base = block.segment;
        let Some(front) = (block.address - base).checked_next_multiple_of(page) else { return };
        let from = base.saturating_add(front);
        let end = block.address + block.size;
        let to = base + (end - base) / page * page;
        if from >= to {
            return;
        }
        driver.unmap(from, to - from, page);
        self.reserved = self.reserved.saturating_sub(to - from);
        self.blocks.take_unused(id);
        let mut hole = id;
        if from > block.address {
            hole = self.blocks.split_off(id, from - block.address);
            self.blocks.insert_unused(id);
        }
        if end > to {
            let after = self.blocks.split_off(hole, to - from);
            self.blocks.insert_unused(after);
        }
        self.blocks.get_mut(hole).is_mapped = false;
        self.blocks.merge_neighbours(hole);
        self.blocks.insert_unused(hole);
        if !self.blocks.get(hole).is_split() {
            self.blocks.take_unused(hole);
            self.blocks.remove(hole);
        }
    }
}
