//! RMM's pool (`pool_memory_resource`).
//!
//! There is one free list per stream. Blocks are merged only within a list, and never across the border of two driver
//! allocations. A request searches its own list, then takes a block from another list, then moves the other lists into
//! its own one by one. Finally the pool grows: to twice its size, or by the request if that is more. It never shrinks.
//!
//! RMM searches the other lists in the order of host handles, which no recording contains; this model uses the order in
//! which streams first appeared. As in RMM's Python interface, the initial size is half of the memory if the memory is
//! known, and otherwise zero.

use makeroom_core::FastMap;
use makeroom_place::{BySize, Hole, Index, REGION_ALIGNMENT, Tile, TileId, Tiles};

use crate::device::Device;
use crate::driver::{Driver, Refused};
use crate::model::Model;
use crate::models::largest::Largest;
use crate::models::options::{self, OptionError};
use crate::models::slots::Slots;
use crate::pytorch::Request;

/// The granularity of blocks.
const GRAIN: u64 = 256;

/// The configuration of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// Size of the initial allocation; `None`: half of the memory.
    initial: Option<u64>,
    /// Maximum size; `None`: no limit but the driver's.
    maximum: Option<u64>,
}

impl Options {
    pub(crate) fn parse(text: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for entry in options::entries(text) {
            match entry? {
                ("initial", value) => options.initial = Some(options::size("initial", value)?),
                ("maximum", value) => options.maximum = Some(options::size("maximum", value)?),
                (name, _) => {
                    return Err(OptionError::unknown(name, "`rmm-pool` accepts `initial` and `maximum`"));
                }
            }
        }
        if let (Some(initial), Some(maximum)) = (options.initial, options.maximum)
            && initial > maximum
        {
            return Err(OptionError::new("initial", "must not be more than `maximum`"));
        }
        Ok(options)
    }
}

/// RMM's pool on one device. The owner of a free tile is the label of its list.
///
/// When one list is moved into another, the shorter one is: the longer one changes hands with its label, so that its
/// tiles need not be touched. The result is the same, because a list is ordered by size and address alone.
#[derive(Clone, Debug)]
pub(crate) struct RmmPool {
    tiles: Tiles,
    lists: Vec<List>,
    /// The largest hole of each list.
    largest: Largest,
    /// The list of each stream.
    streams: FastMap<u64, u32>,
    /// The list and the tile of each allocation.
    blocks: Slots<(u32, TileId)>,
    /// Size of the allocation before the first request; 0 once it is made.
    initial: u64,
    maximum: Option<u64>,
    reserved: u64,
    /// The address of the next driver allocation.
    end: u64,
}

/// The free memory of a stream.
#[derive(Clone, Debug)]
struct List {
    holes: BySize,
    label: u32,
}

impl RmmPool {
    pub(crate) fn new(options: Options, memory: Option<u64>) -> Self {
        let initial = options.initial.or(memory.map(|memory| memory / 2)).unwrap_or(0);
        let initial = options.maximum.map_or(initial, |maximum| initial.min(maximum));
        Self {
            tiles: Tiles::default(),
            lists: Vec::new(),
            largest: Largest::default(),
            streams: FastMap::default(),
            blocks: Slots::default(),
            initial: initial / GRAIN * GRAIN,
            maximum: options.maximum,
            reserved: 0,
            end: 0,
        }
    }

    fn list_of(&mut self, stream: u64) -> u32 {
        *self.streams.entry(stream).or_insert_with(|| {
            let label = self.lists.len() as u32;
            // The first list is not searched for until there is a second one.
            if let [first] = &self.lists[..] {
                self.largest.set(0, first.holes.largest());
            }
            self.lists.push(List { holes: BySize::default(), label });
            label
        })
    }

    /// Updates `largest` after a list has changed.
    fn note_largest(&mut self, list: u32) {
        if self.lists.len() > 1 {
            self.largest.set(list, self.lists[list as usize].holes.largest());
        }
    }

    fn hole(&self, tile: TileId) -> Hole {
        let &Tile { size, offset, .. } = self.tiles.get(tile);
        Hole { size, offset, tile }
    }

    fn insert(&mut self, list: u32, tile: TileId) {
        let hole = self.hole(tile);
        self.lists[list as usize].holes.insert(hole);
        self.note_largest(list);
    }

    fn remove(&mut self, list: u32, hole: Hole) {
        self.lists[list as usize].holes.remove(hole);
        self.note_largest(list);
    }

    /// Takes a block from a list; the rest of it stays there.
    fn take(&mut self, list: u32, size: u64) -> Option<TileId> {
        let hole = self.lists[list as usize].holes.first(size)?;
        self.remove(list, hole);
        if hole.size > size {
            let rest = self.tiles.split(hole.tile, size);
            self.insert(list, rest);
        }
        self.tiles.set_free(hole.tile, false);
        Some(hole.tile)
    }

    /// Adds a free tile to a list and merges it with its neighbors there.
    fn put(&mut self, list: u32, mut tile: TileId) {
        self.tiles.set_owner(tile, self.lists[list as usize].label);
        self.tiles.set_free(tile, true);
        if let Some(next) = self.tiles.mergeable_next(tile) {
            self.remove(list, self.hole(next));
            self.tiles.absorb_next(tile);
        }
        if let Some(previous) = self.tiles.mergeable_previous(tile) {
            self.remove(list, self.hole(previous));
            self.tiles.absorb_next(previous);
            tile = previous;
        }
        self.insert(list, tile);
    }

    /// Moves other lists into this one, one by one, until it has a block.
    fn merge_lists(&mut self, list: u32, size: u64) -> Option<TileId> {
        let mut from = 0;
        while let Some(other) = self.largest.next_at_least(from, 1) {
            from = other + 1;
            if other == list {
                continue;
            }
            if self.lists[other as usize].holes.len() > self.lists[list as usize].holes.len() {
                self.lists.swap(other as usize, list as usize);
            }
            let moved = std::mem::take(&mut self.lists[other as usize].holes);
            self.largest.set(other, 0);
            for hole in moved.iter() {
                self.put(list, hole.tile);
            }
            self.note_largest(list);
            if let Some(tile) = self.take(list, size) {
                return Some(tile);
            }
        }
        None
    }

    /// The first block that another list has. The request's own list has none.
    fn take_from_others(&mut self, size: u64) -> Option<TileId> {
        let list = self.largest.first_at_least(size)?;
        self.take(list, size)
    }

    /// Allocates driver memory for a request of `size` bytes: the preferred size, or half of it, and so on.
    fn expand(&mut self, device: &mut Device, list: u32, size: u64) -> Result<(), Refused> {
        let mut wanted = match self.maximum {
            None => size.max(self.reserved),
            Some(maximum) => {
                let left = maximum.saturating_sub(self.reserved);
                if size > left {
                    return Err(Refused);
                }
                size.max(left / 2 / GRAIN * GRAIN)
            }
        };
        while device.allocate_segment(wanted, 0).is_err() {
            if wanted == size {
                return Err(Refused);
            }
            wanted = size.max((wanted / 2).next_multiple_of(GRAIN));
        }
        self.add(list, wanted)
    }

    fn add(&mut self, list: u32, size: u64) -> Result<(), Refused> {
        let end = self.end.checked_add(size).and_then(|end| end.checked_next_multiple_of(REGION_ALIGNMENT));
        let tile = self.tiles.add_region(self.end, size, self.lists[list as usize].label);
        self.end = end.ok_or(Refused)?;
        self.reserved += size;
        self.insert(list, tile);
        Ok(())
    }

    /// The initial allocation must succeed in full: otherwise RMM does not start.
    fn begin(&mut self, device: &mut Device, list: u32) -> Result<(), Refused> {
        let initial = std::mem::take(&mut self.initial);
        if initial > 0 {
            device.allocate_segment(initial, 0)?;
            self.add(list, initial)?;
        }
        Ok(())
    }
}

impl Model for RmmPool {
    fn allocate_block(&mut self, device: &mut Device, slot: u32, request: Request) -> Result<(), Refused> {
        let size = request.size.max(1).checked_next_multiple_of(GRAIN).ok_or(Refused)?;
        let own = self.list_of(request.stream);
        self.begin(device, own)?;
        let mut found = self.take(own, size);
        found = found.or_else(|| self.take_from_others(size)).or_else(|| self.merge_lists(own, size));
        if found.is_none() {
            self.expand(device, own, size)?;
            found = self.take(own, size);
        }
        let tile = found.ok_or(Refused)?;
        // Regardless of the list it came from, it is returned to the list of the stream that frees it.
        self.blocks.insert(slot, (own, tile));
        Ok(())
    }

    fn free_later(&mut self, _device: &mut Device, _slot: u32) {}

    fn free(&mut self, _device: &mut Device, slot: u32) {
        if let Some((list, tile)) = self.blocks.take(slot) {
            self.put(list, tile);
        }
    }

    /// It never releases memory.
    fn empty_cache(&mut self, _device: &mut Device) {}

    fn reserved(&self) -> u64 {
        self.reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Outcome, replay};
    use crate::testing::Script;

    const MIB: u64 = 1 << 20;

    fn run(script: Script, options: &str, memory: Option<u64>) -> Outcome {
        let mut model = RmmPool::new(Options::parse(options).unwrap(), memory);
        replay(&script.program(), &mut model, &mut Device::new(memory))
    }

    fn three_requests() -> Script {
        let mut script = Script::default();
        for size in [10 * MIB, MIB, 10 * MIB] {
            script.allocate(size);
        }
        script
    }

    #[test]
    fn the_pool_doubles() {
        let outcome = run(three_requests(), "", None);
        assert_eq!((outcome.peak_reserved, outcome.driver_calls), (40 * MIB, 3));
    }

    #[test]
    fn the_pool_begins_with_half_of_the_memory_and_halves_what_is_refused() {
        let outcome = run(three_requests(), "", Some(24 * MIB));
        assert_eq!((outcome.peak_reserved, outcome.driver_calls), (24 * MIB, 2));
        // Another 14 fail, and half of that would be too little.
        let outcome = run(three_requests(), "initial=14MiB", Some(24 * MIB));
        assert_eq!((outcome.peak_reserved, outcome.driver_calls), (24 * MIB, 3));
        let outcome = run(three_requests(), "initial=0", Some(24 * MIB));
        assert_eq!(outcome.peak_reserved, 20 * MIB);
        assert!(outcome.refusal.is_some());
        assert!(run(three_requests(), "maximum=20MiB", None).refusal.is_some());
    }

    #[test]
    fn a_stream_takes_from_another_and_keeps_what_it_took() {
        let mut script = Script::default();
        let whole = script.allocate_on(8 * MIB, 1);
        script.free(whole);
        // The second stream takes 2 MiB of the first one's 8, and frees them to its own list …
        let taken = script.allocate_on(2 * MIB, 2);
        script.free(taken);
        // … so the 8 MiB are contiguous again only when the lists are merged.
        script.allocate_on(8 * MIB, 1);
        let outcome = run(script, "", None);
        assert_eq!((outcome.peak_reserved, outcome.driver_calls), (8 * MIB, 1));
    }

    #[test]
    fn an_initial_size_above_the_maximum_is_refused() {
        assert!(Options::parse("initial=2GiB,maximum=1GiB").is_err());
        assert!(Options::parse("size=1GiB").is_err());
    }
}
