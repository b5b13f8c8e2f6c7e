//! A set of free ranges with best fit and coalescing.
//!
//! It is used for the address space, for the free ranges in the pages that small blocks share, and for the unused
//! parts of a pool.

use makeroom_ordered::{OrderedMap, OrderedSet};

/// Free ranges, none empty, none adjacent to another except at a multiple of `wall`.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    by_start: OrderedMap<u64, u64>,
    by_size: OrderedSet<(u64, u64)>,
    wall: Option<u64>,
}

impl Ranges {
    /// An empty set whose ranges are never coalesced across a multiple of `wall`.
    pub(super) fn with_walls(wall: u64) -> Self {
        Self { wall: Some(wall), ..Self::default() }
    }

    /// Adds a range that was not free. Returns the range it was coalesced into.
    pub(super) fn insert(&mut self, mut start: u64, mut length: u64) -> (u64, u64) {
        let wall = self.wall;
        let is_wall = |at: u64| wall.is_some_and(|wall| at.is_multiple_of(wall));
        let end = start + length;
        if !is_wall(start)
            && let Some((before, size)) =
                self.by_start.range(..start).next_back().map(|(at, size)| (*at, *size))
            && before + size == start
        {
            self.remove(before, size);
            start = before;
            length += size;
        }
        if !is_wall(end)
            && let Some(size) = self.by_start.get(&end).copied()
        {
            self.remove(end, size);
            length += size;
        }
        self.add(start, length);
        (start, length)
    }

    /// Takes `length` from the start of the smallest range that fits.
    pub(super) fn take(&mut self, length: u64) -> Option<u64> {
        let (size, start) = self.by_size.range((length, 0)..).next().copied()?;
        self.remove(start, size);
        if size > length {
            self.add(start + length, size - length);
        }
        Some(start)
    }

    /// Takes `length` at the first multiple of `alignment` in the smallest range that fits.
    pub(super) fn take_aligned(&mut self, length: u64, alignment: u64) -> Option<u64> {
        let fits = |&&(size, start): &&(u64, u64)| start.next_multiple_of(alignment) - start + length <= size;
        let start = self.by_size.range((length, 0)..).find(fits).map(|(_, start)| *start)?;
        let aligned = start.next_multiple_of(alignment);
        self.take_at(aligned, length).then_some(aligned)
    }

    /// Takes exactly this range, if all of it is free.
    pub(super) fn take_at(&mut self, start: u64, length: u64) -> bool {
        let Some((from, size)) = self.by_start.range(..=start).next_back().map(|(at, size)| (*at, *size))
        else {
            return false;
        };
        let (end, to) = (start + length, from + size);
        if end > to {
            return false;
        }
        self.remove(from, size);
        if start > from {
            self.add(from, start - from);
        }
        if to > end {
            self.add(end, to - end);
        }
        true
    }

    /// Whether the whole range is free.
    pub(super) fn contains(&self, start: u64, length: u64) -> bool {
        let before = self.by_start.range(..=start).next_back();
        before.is_some_and(|(at, size)| start + length <= at + size)
    }

    /// All ranges in order, as start and length.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_start.iter().map(|(start, length)| (*start, *length))
    }

    /// The sum of all lengths.
    #[cfg(test)]
    pub(super) fn total(&self) -> u64 {
        self.by_start.values().sum()
    }

    fn add(&mut self, start: u64, length: u64) {
        self.by_start.insert(start, length);
        self.by_size.insert((length, start));
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.by_start.remove(&start);
        self.by_size.remove(&(length, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_grow_together_but_not_across_a_wall() {
        let mut ranges = Ranges::with_walls(100);
        assert_eq!(ranges.insert(10, 10), (10, 10));
        assert_eq!(ranges.insert(30, 10), (30, 10));
        assert_eq!(ranges.insert(20, 10), (10, 30));
        assert_eq!(ranges.insert(100, 10), (100, 10));
        assert_eq!(ranges.insert(40, 60), (10, 90));
        assert_eq!(ranges.total(), 100);
    }

    #[test]
    fn the_smallest_that_fits_is_taken() {
        let mut ranges = Ranges::default();
        ranges.insert(0, 50);
        ranges.insert(100, 20);
        assert_eq!(ranges.take(15), Some(100));
        assert_eq!(ranges.take(15), Some(0));
        assert_eq!(ranges.take(40), None);
        assert_eq!(ranges.take_aligned(10, 16), Some(16));
        assert!(ranges.take_at(30, 5));
        assert!(!ranges.take_at(28, 4), "part of it is taken");
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(15, 1), (26, 4), (35, 15), (115, 5)]);
    }
}
