//! CuPy's memory pool.
//!
//! One arena per stream, no separate pools for small and large blocks, no minimum segment: a miss requests exactly the
//! rounded size from the driver, and a hit is split exactly. When the driver is out of memory, every unused segment of
//! every arena is freed, and the request is retried once.
//!
//! Of equally large holes, CuPy picks the one whose host object has the lowest address, which no recording contains;
//! this model picks the hole with the lowest address. That can change which hole is used, and how later ones are split.

use std::collections::BTreeSet;

use makeroom_core::FastMap;
use makeroom_place::{BestFit, Offset, Placement};

use crate::device::Device;
use crate::driver::{Driver, Refused};
use crate::model::Model;
use crate::models::slots::Slots;
use crate::pytorch::Request;

/// The granularity of blocks.
const GRAIN: u64 = 512;

/// CuPy's pool on one device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cupy {
    arenas: Vec<BestFit>,
    /// The arena of each stream.
    streams: FastMap<u64, usize>,
    /// The arena and the location of each allocation.
    blocks: Slots<(usize, Offset)>,
    /// The arenas in which something was freed since unused segments were.
    changed: BTreeSet<usize>,
    reserved: u64,
}

impl Cupy {
    fn arena_of(&mut self, stream: u64) -> usize {
        *self.streams.entry(stream).or_insert_with(|| {
            self.arenas.push(BestFit::new(GRAIN));
            self.arenas.len() - 1
        })
    }

    /// Allocates a segment of exactly this size from the driver.
    fn extend(&mut self, device: &mut Device, arena: usize, size: u64) -> Result<(), Refused> {
        if device.allocate_segment(size, 0).is_err() {
            self.free_all_blocks(device);
            device.allocate_segment(size, 0)?;
        }
        self.reserved += size;
        self.arenas[arena].grow(size).map(|_| ()).ok_or(Refused)
    }

    /// Frees every unused segment.
    fn free_all_blocks(&mut self, device: &mut Device) {
        for arena in std::mem::take(&mut self.changed) {
            for region in self.arenas[arena].shrink() {
                device.release(region.offset.0, region.size);
                self.reserved -= region.size;
            }
        }
    }
}

impl Model for Cupy {
    fn allocate_block(&mut self, device: &mut Device, slot: u32, request: Request) -> Result<(), Refused> {
        let arena = self.arena_of(request.stream);
        let size = request.size.max(1).checked_next_multiple_of(GRAIN).ok_or(Refused)?;
        let mut placed = self.arenas[arena].place(size, GRAIN);
        if placed.is_none() {
            self.extend(device, arena, size)?;
            placed = self.arenas[arena].place(size, GRAIN);
        }
        self.blocks.insert(slot, (arena, placed.ok_or(Refused)?));
        Ok(())
    }

    fn free_later(&mut self, _device: &mut Device, _slot: u32) {}

    fn free(&mut self, _device: &mut Device, slot: u32) {
        if let Some((arena, offset)) = self.blocks.take(slot) {
            let freed = self.arenas[arena].free(offset);
            debug_assert!(freed.is_ok());
            self.changed.insert(arena);
        }
    }

    /// Implements `MemoryPool.free_all_blocks()`.
    fn empty_cache(&mut self, device: &mut Device) {
        self.free_all_blocks(device);
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay;
    use crate::testing::Script;

    #[test]
    fn segments_are_exact_and_cut_exactly() {
        let mut script = Script::default();
        let large = script.allocate(10_000);
        script.free(large);
        script.allocate(513);
        script.allocate(9_000);
        let outcome = replay(&script.program(), &mut Cupy::default(), &mut Device::new(None));
        assert_eq!((outcome.peak_reserved, outcome.driver_calls), (10_240, 1));
    }

    #[test]
    fn streams_do_not_share_but_give_back_for_each_other() {
        let mut script = Script::default();
        let first = script.allocate_on(4096, 1);
        script.free(first);
        script.allocate_on(4096, 2);
        let program = script.program();
        let roomy = replay(&program, &mut Cupy::default(), &mut Device::new(None));
        assert_eq!(roomy.peak_reserved, 8192);
        let tight = replay(&program, &mut Cupy::default(), &mut Device::new(Some(4096)));
        assert_eq!((tight.peak_reserved, tight.refusal), (4096, None));
    }
}
