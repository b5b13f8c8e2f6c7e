//! An ordered map by size and address for best fit: the hot data structure of every model and pool.
//!
//! A single tree over all holes gets deep exactly when it matters, because a fragmented program has thousands of holes.
//! Therefore, sizes are divided into 128 bins, four per power of two, each with its own ordered map. A bitmap with one bit
//! per bin finds the next nonempty bin. The order is the same as in a single tree, because bins are ordered by size.
//!
//! ```text
//! bin     0         1         2         3         4         …   127
//! sizes   0–319     320–383   384–447   448–511   512–639   …   2⁴⁰ − 2³⁷ and more
//! ```
//!
//! Models have one map per stream, and a program can have thousands of streams with a few holes each. Therefore, the
//! first entries are stored in a sorted list; the bins, which take 4 KB, are allocated only for longer ones.

use crate::sorted::Sorted;

/// The number of bins: one per bit of a `u128`.
const COUNT: usize = 128;
/// Base-2 logarithm of the size at which the bins start.
const LEAST_POWER: u32 = 8;
/// Base-2 logarithm of the number of bins per power of two.
const PARTS_POWER: u32 = 2;
/// The maximum number of entries in the list.
const FEW: usize = 16;

/// A size and an address.
type Key = (u64, u64);

/// Values by size and address.
#[derive(Clone, Debug)]
pub struct SizeMap<T> {
    /// All entries, as long as there are at most [`FEW`]; empty otherwise.
    few: Vec<(Key, T)>,
    bins: Option<Box<[Sorted<Key, T>; COUNT]>>,
    /// Bit `b` is set if bin `b` is not empty.
    filled: u128,
    len: usize,
}

impl<T> Default for SizeMap<T> {
    fn default() -> Self {
        Self { few: Vec::new(), bins: None, filled: 0, len: 0 }
    }
}

fn bin_of(size: u64) -> usize {
    let size = size.max(1 << LEAST_POWER);
    let power = size.ilog2();
    let part = (size >> (power - PARTS_POWER)) & ((1 << PARTS_POWER) - 1);
    ((((power - LEAST_POWER) << PARTS_POWER) as usize) + part as usize).min(COUNT - 1)
}

impl<T: Copy> SizeMap<T> {
    /// Adds a value.
    pub fn insert(&mut self, size: u64, address: u64, value: T) {
        let key = (size, address);
        let Some(bins) = &mut self.bins else { return self.insert_into_list(key, value) };
        let bin = bin_of(size);
        self.filled |= 1 << bin;
        self.len += usize::from(bins[bin].insert(key, value));
    }

    fn insert_into_list(&mut self, key: Key, value: T) {
        match self.few.binary_search_by_key(&key, |&(key, _)| key) {
            Ok(place) => self.few[place].1 = value,
            Err(place) if self.few.len() < FEW => {
                self.few.insert(place, (key, value));
                self.len += 1;
            }
            Err(_) => {
                self.bins = Some(Box::new(std::array::from_fn(|_| Sorted::default())));
                self.len = 0;
                for ((size, address), value) in std::mem::take(&mut self.few) {
                    self.insert(size, address, value);
                }
                self.insert(key.0, key.1, value);
            }
        }
    }

    /// Removes a value.
    pub fn remove(&mut self, size: u64, address: u64) -> Option<T> {
        let key = (size, address);
        let removed = if let Some(bins) = &mut self.bins {
            let bin = bin_of(size);
            let removed = bins[bin].remove(key)?;
            if bins[bin].is_empty() {
                self.filled &= !(1 << bin);
            }
            removed
        } else {
            let place = self.few.binary_search_by_key(&key, |&(key, _)| key).ok()?;
            self.few.remove(place).1
        };
        self.len -= 1;
        Some(removed)
    }

    /// The first entry at or after a size and address.
    pub fn first_from(&self, size: u64, address: u64) -> Option<(u64, u64, T)> {
        let Some(bins) = &self.bins else {
            let place = self.few.partition_point(|&(key, _)| key < (size, address));
            return self.few.get(place).map(|&((size, address), value)| (size, address, value));
        };
        let bin = bin_of(size);
        let within = bins[bin].first_from((size, address));
        let ((size, address), value) = within.or_else(|| {
            let above = self.filled.checked_shr(bin as u32 + 1).filter(|&above| above != 0)?;
            bins[bin + 1 + above.trailing_zeros() as usize].first()
        })?;
        Some((size, address, value))
    }

    /// All entries at or above a size, ascending. Each `next` is a separate lookup: meant for reading only the first
    /// few.
    pub fn iter_from(&self, size: u64) -> impl Iterator<Item = (u64, u64, T)> + '_ {
        let mut from = Some((size, 0));
        std::iter::from_fn(move || {
            let (size, address) = from?;
            let found = self.first_from(size, address)?;
            from = found.1.checked_add(1).map(|address| (found.0, address));
            Some(found)
        })
    }

    /// All entries, descending.
    pub fn iter_descending(&self) -> impl Iterator<Item = (u64, u64, T)> + '_ {
        let binned = self.bins.iter().flat_map(|bins| bins.iter().rev()).flat_map(Sorted::iter_descending);
        let entries = self.few.iter().rev().copied().chain(binned);
        entries.map(|((size, address), value)| (size, address, value))
    }

    /// The largest size; 0 if empty.
    pub fn largest(&self) -> u64 {
        let Some(bins) = &self.bins else { return self.few.last().map_or(0, |&((size, _), _)| size) };
        let last = self.filled.checked_ilog2().and_then(|bin| bins[bin as usize].last());
        last.map_or(0, |((size, _), _)| size)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn bins_ascend_with_sizes() {
        assert_eq!([0, 256, 319, 320, 511, 512, 639, 640].map(bin_of), [0, 0, 0, 1, 3, 4, 4, 5]);
        assert_eq!([(1 << 40) - (1 << 37), 1 << 40, u64::MAX].map(bin_of), [127; 3]);
        assert_eq!(bin_of((1 << 40) - (1 << 37) - 1), 126);
        assert!((0..1_u64 << 14).is_sorted_by_key(|size| bin_of(size << 7)));
    }

    #[test]
    fn the_order_is_that_of_one_tree() {
        let mut map = SizeMap::default();
        let mut tree = BTreeSet::new();
        let mut state = 1_u64;
        for _ in 0..5000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (size, address) = ((state >> 33) >> ((state >> 20) % 31), (state >> 50) % 4);
            if state.is_multiple_of(3) {
                assert_eq!(map.remove(size, address).is_some(), tree.remove(&(size, address)));
            } else {
                map.insert(size, address, ());
                tree.insert((size, address));
            }
            let from = (state >> 40) >> ((state >> 10) % 24);
            let expected = tree.range((from, 0)..).next().map(|&(size, address)| (size, address, ()));
            assert_eq!(map.first_from(from, 0), expected);
            assert_eq!(map.iter_from(from).next(), expected);
            assert_eq!(map.len(), tree.len());
            assert_eq!(map.largest(), tree.last().map_or(0, |&(size, _)| size));
        }
        assert!(
            map.iter_descending().map(|(size, address, ())| (size, address)).eq(tree.iter().rev().copied())
        );
    }
}
