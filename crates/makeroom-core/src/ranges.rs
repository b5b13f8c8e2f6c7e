//! A set of address ranges, such as the mapped parts of an expandable segment.
//!
//! Adjacent ranges are merged. Inserting a range twice or removing a missing one is harmless: incomplete recordings
//! do both.

use std::collections::BTreeMap;

/// Disjoint ranges, by start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Start to end, exclusive. No two are adjacent.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds a range.
    pub fn insert(&mut self, start: u64, size: u64) {
        let (mut start, mut end) = (start, start.saturating_add(size));
        if start >= end {
            return;
        }
        while let Some((&known_start, &known_end)) = self.ends.range(..=end).next_back() {
            if known_end < start {
                break;
            }
            start = start.min(known_start);
            end = end.max(known_end);
            self.ends.remove(&known_start);
        }
        self.ends.insert(start, end);
    }

    /// Removes a range.
    pub fn remove(&mut self, start: u64, size: u64) {
        let end = start.saturating_add(size);
        while let Some((&known_start, &known_end)) = self.ends.range(..end).next_back() {
            if known_end <= start {
                break;
            }
            self.ends.remove(&known_start);
            if known_end > end {
                self.ends.insert(end, known_end);
            }
            if known_start < start {
                self.ends.insert(known_start, start);
            }
        }
    }

    /// Whether an address is in one of the ranges.
    pub fn contains(&self, place: u64) -> bool {
        self.range_of(place).is_some()
    }

    /// The range that contains an address, as start and size.
    pub fn range_of(&self, place: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.ends.range(..=place).next_back()?;
        (place < end).then_some((start, end - start))
    }

    /// The start of the first range at or after a place.
    pub fn first_from(&self, place: u64) -> Option<u64> {
        self.ends.range(place..).next().map(|(&start, _)| start)
    }

    /// All ranges as start and size, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ends.iter().map(|(&start, &end)| (start, end - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_ranges_become_one_and_holes_split() {
        let mut ranges = Ranges::default();
        ranges.insert(0, 10);
        ranges.insert(20, 10);
        ranges.insert(10, 10);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 30)]);
        ranges.remove(5, 10);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 5), (15, 15)]);
        assert_eq!(ranges.range_of(4), Some((0, 5)));
        assert_eq!(
            [ranges.first_from(0), ranges.first_from(1), ranges.first_from(16)],
            [Some(0), Some(15), None]
        );
        assert_eq!(ranges.range_of(5), None);
        ranges.remove(0, 100);
        assert_eq!(ranges.iter().count(), 0);
    }

    #[test]
    fn behaves_like_a_set_of_bytes() {
        // A linear congruential generator: this crate has no dependencies.
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let mut ranges = Ranges::default();
            let mut bytes = [false; 128];
            for _ in 0..60 {
                let (is_insert, start, size) = (next(2) == 0, next(64), next(32));
                if is_insert {
                    ranges.insert(start, size);
                } else {
                    ranges.remove(start, size);
                }
                bytes[start as usize..(start + size) as usize].fill(is_insert);
            }
            let mut from_ranges = [false; 128];
            for (start, size) in ranges.iter() {
                from_ranges[start as usize..(start + size) as usize].fill(true);
            }
            assert_eq!(bytes, from_ranges);
        }
    }
}
