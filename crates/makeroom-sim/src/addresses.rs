//! Simulates where the driver places allocations, as observed.
//!
//! PyTorch's allocator picks the lower of two free blocks of equal size, so its behavior depends on addresses. On
//! Linux, the driver starts with an arena that it fills from the lower end. After that, it places each allocation in
//! its own region, a multiple of 32 MiB, as high as possible below the existing ones; the unused ends of regions serve
//! small requests. Empty regions are removed, and their addresses are reused.
//!
//! ```text
//! … │ region 3 ····│ region 2 ···│  region 1 ·│  arena ───▶ │
//! ```

use std::collections::BTreeMap;

/// Regions are multiples of this, and aligned to it.
const REGION: u64 = 32 << 20;
/// Size of the initial arena.
const ARENA: u64 = 416 << 20;
/// Its start address.
const ARENA_START: u64 = 0x7f00_0000_0000;

/// The addresses of one process.
///
/// Regions do not overlap. Holes are inside regions, and no two are adjacent.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// The end of each region, by its start.
    regions: BTreeMap<u64, u64>,
    /// The end of each hole, by its start.
    holes: BTreeMap<u64, u64>,
}

impl Default for Addresses {
    fn default() -> Self {
        let arena = BTreeMap::from([(ARENA_START, ARENA_START + ARENA)]);
        Self { regions: arena.clone(), holes: arena }
    }
}

impl Addresses {
    /// Finds an address for this many bytes.
    pub(crate) fn take(&mut self, size: u64) -> u64 {
        let fitting = self.holes.iter().find(|&(&start, &end)| end - start >= size).map(|(&start, _)| start);
        let start = fitting.unwrap_or_else(|| self.open(size));
        if let Some(end) = self.holes.remove(&start)
            && start + size < end
        {
            self.holes.insert(start + size, end);
        }
        start
    }

    /// Frees an address range.
    pub(crate) fn give_back(&mut self, start: u64, size: u64) {
        let Some((&region, &region_end)) = self.regions.range(..=start).next_back() else { return };
        let (mut low, mut high) = (start, start.saturating_add(size).min(region_end));
        // A hole that starts at the region's end belongs to another region.
        if high < region_end
            && let Some(end) = self.holes.remove(&high)
        {
            high = end;
        }
        if let Some((&before, &end)) = self.holes.range(region..low).next_back()
            && end >= low
        {
            self.holes.remove(&before);
            low = before;
        }
        if (low, high) == (region, region_end) && region != ARENA_START {
            self.regions.remove(&region);
        } else {
            self.holes.insert(low, high);
        }
    }

    /// Adds a region for this many bytes, all free, and returns its start.
    fn open(&mut self, size: u64) -> u64 {
        let size = size.checked_next_multiple_of(REGION).unwrap_or(u64::MAX);
        let mut top = ARENA_START;
        for (&start, &end) in self.regions.range(..ARENA_START).rev() {
            if top - end >= size {
                break;
            }
            top = start;
        }
        let start = top.saturating_sub(size);
        self.regions.insert(start, top);
        self.holes.insert(start, top);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_arena_is_filled_upward_and_regions_come_below_it() {
        let mut addresses = Addresses::default();
        let first = addresses.take(400 * MIB);
        assert_eq!((first, addresses.take(2 * MIB)), (ARENA_START, ARENA_START + 400 * MIB));
        let region = addresses.take(1076 * MIB);
        assert_eq!(region, ARENA_START - 1088 * MIB);
        assert_eq!(addresses.take(33 * MIB), region - 64 * MIB);
        // The unused end of a region serves small requests.
        assert_eq!(addresses.take(30 * MIB), region - 64 * MIB + 33 * MIB);
        assert_eq!(addresses.take(12 * MIB), region + 1076 * MIB);
    }

    /// A block that fills its region is adjacent to the next region, which it must not merge with.
    #[test]
    fn a_region_does_not_grow_into_the_next() {
        let mut addresses = Addresses::default();
        let first = addresses.take(2 * MIB);
        let region = addresses.take(512 * MIB);
        assert_eq!(region, ARENA_START - 512 * MIB);
        addresses.give_back(first, 2 * MIB);
        addresses.give_back(region, 512 * MIB);
        assert_eq!(addresses.take(2 * MIB), ARENA_START, "the empty region is gone");
    }

    #[test]
    fn a_region_that_is_empty_makes_place_for_another() {
        let mut addresses = Addresses::default();
        let [one, two, three] = [434, 660, 868].map(|mib| addresses.take(mib * MIB));
        addresses.give_back(one, 434 * MIB);
        addresses.give_back(two, 660 * MIB);
        assert_eq!(addresses.take(1000 * MIB), ARENA_START - 1024 * MIB);
        assert_eq!(addresses.take(900 * MIB), three - 928 * MIB);
    }

    #[test]
    fn pieces_that_touch_become_one() {
        let mut addresses = Addresses::default();
        let pieces: Vec<u64> = (0..13).map(|_| addresses.take(32 * MIB)).collect();
        for &number in &[1, 3, 2, 0] {
            addresses.give_back(pieces[number], 32 * MIB);
        }
        assert_eq!(addresses.take(128 * MIB), ARENA_START);
    }
}
