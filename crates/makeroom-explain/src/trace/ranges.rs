//! A set of address ranges: what of an expandable segment is mapped.
//!
//! Ranges that touch are one range. Inserting what is there and removing what is not is harmless: recordings
//! with holes do both.

use std::collections::BTreeMap;

/// Disjoint ranges, by start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    /// Start to end, exclusive. No two touch.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds a range.
    pub(crate) fn insert(&mut self, start: u64, size: u64) {
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

    /// Takes a range out.
    pub(crate) fn remove(&mut self, start: u64, size: u64) {
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

    /// All ranges as start and size, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ends.iter().map(|(&start, &end)| (start, end - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn touching_ranges_become_one_and_holes_split() {
        let mut ranges = Ranges::default();
        ranges.insert(0, 10);
        ranges.insert(20, 10);
        ranges.insert(10, 10);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 30)]);
        ranges.remove(5, 10);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 5), (15, 15)]);
        ranges.remove(0, 100);
        assert_eq!(ranges.iter().count(), 0);
    }

    proptest! {
        #[test]
        fn behaves_like_a_set_of_bytes(steps in prop::collection::vec((any::<bool>(), 0_u64..64, 0_u64..32), 0..60)) {
            let mut ranges = Ranges::default();
            let mut bytes = [false; 128];
            for (is_insert, start, size) in steps {
                if is_insert { ranges.insert(start, size) } else { ranges.remove(start, size) }
                bytes[start as usize..(start + size) as usize].fill(is_insert);
            }
            let mut from_ranges = [false; 128];
            for (start, size) in ranges.iter() {
                from_ranges[start as usize..(start + size) as usize].fill(true);
            }
            prop_assert_eq!(bytes, from_ranges);
        }
    }
}
