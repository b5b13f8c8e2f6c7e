//! Where the driver puts what it hands out, as it was seen to.
//!
//! PyTorch's allocator takes the lower of two unused blocks of one size, so what it does in the end depends on addresses.
//! On Linux the driver begins with an arena that it fills from its lower end; everything further gets a region of its own
//! in multiples of 32 MiB, as high as possible below what is there, and the ends of regions serve small requests. A region
//! that is empty goes, and its place is used again.
//!
//! ```text
//! … │ region 3 ····│ region 2 ···│  region 1 ·│  arena ───▶ │
//! ```

use std::collections::BTreeMap;

/// Regions are multiples of this, and begin at multiples of it.
const REGION: u64 = 32 << 20;
/// What there is at the beginning.
const ARENA: u64 = 416 << 20;
/// Where it begins.
const ARENA_START: u64 = 0x7f00_0000_0000;

/// The addresses of one process.
///
/// Regions do not overlap; holes lie in regions, and no two touch.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// The end of each region, by its start.
    regions: BTreeMap<u64, u64>,
    /// The end of each free piece of a region, by its start.
    holes: BTreeMap<u64, u64>,
}

impl Default for Addresses {
    fn default() -> Self {
        let arena = BTreeMap::from([(ARENA_START, ARENA_START + ARENA)]);
        Self { regions: arena.clone(), holes: arena }
    }
}

impl Addresses {
    /// A place for so many bytes.
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

    /// A place is free again.
    pub(crate) fn give_back(&mut self, start: u64, size: u64) {
        let Some((&region, &region_end)) = self.regions.range(..=start).next_back() else { return };
        let (mut low, mut high) = (start, start.saturating_add(size).min(region_end));
        // What begins at the region's end is another region's.
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

    /// A new region for so many bytes, all of it free: its start.
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
        // What is left at the end of a region serves what is small enough.
        assert_eq!(addresses.take(30 * MIB), region - 64 * MIB + 33 * MIB);
        assert_eq!(addresses.take(12 * MIB), region + 1076 * MIB);
    }

    /// A block that fills its region touches what lies behind it, which is another region's.
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
