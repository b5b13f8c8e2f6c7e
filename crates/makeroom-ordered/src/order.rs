//! The order of entries that are stored elsewhere: a sequence of their positions.
//!
//! Nothing here is generic. A map of any type passes a comparison of its entries as `&mut dyn FnMut`, so the
//! searches, splits and merges below are compiled once, not once per type of map.
//!
//! The positions are stored in chunks of at most [`CHUNK`] entries (a sorted list of lists), so that an insertion or a removal
//! moves a bounded number of them. If the entries themselves are in order, there are no chunks: the n-th entry is at position
//! n. This is the case for maps that were collected or whose keys arrived in order.
//!
//! For a map of `len` entries:
//!
//! - `chunks` is empty, or its concatenation is a permutation of `0..len`; no chunk is empty or larger than [`CHUNK`].
//! - Two neighboring chunks together have more than `CHUNK / 2` positions.
//!
//! Both hold even if comparisons are inconsistent or panic: only the number of comparisons and the resulting order depend on
//! their results, and all comparisons are made before anything changes.

use std::cmp::Ordering;

use crate::positions::Positions;

/// Maximum number of positions in a chunk. With 512, inserting into the middle of a chunk moves 1 KiB, which takes as long
/// as a cache miss; a million entries have 2,000 to 4,000 chunks.
const CHUNK: usize = 512;

/// The order of a map's entries. Methods receive `len`, the number of entries, from the map.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    chunks: Vec<Vec<u32>>,
}

/// A place in the order, of an existing entry or for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// 0 if there are no chunks.
    chunk: usize,
    index: usize,
}

/// The number of entries, as a position.
///
/// # Panics
///
/// If 32-bit positions do not suffice.
pub(crate) fn count(len: usize) -> u32 {
    u32::try_from(len)
        .unwrap_or_else(|_| panic!("capacity overflow: an ordered map has at most {} entries", u32::MAX))
}

impl Order {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.chunks = Vec::new();
    }

    /// Searches for an entry; `compare` compares the entry at a position with the target. The error is the place where
    /// such an entry belongs.
    pub(crate) fn search(
        &self,
        len: usize,
        compare: &mut dyn FnMut(u32) -> Ordering,
    ) -> Result<Place, Place> {
        if self.chunks.is_empty() {
            let found = bisect(0, len, |index| compare(index as u32));
            return found.map(|index| Place { chunk: 0, index }).map_err(|index| Place { chunk: 0, index });
        }
        let chunk = match bisect(0, self.chunks.len(), |chunk| compare(self.chunks[chunk][0])) {
            Ok(chunk) => return Ok(Place { chunk, index: 0 }),
            Err(0) => return Err(Place { chunk: 0, index: 0 }),
            Err(after) => after - 1,
        };
        let positions = &self.chunks[chunk];
        let found = bisect(1, positions.len(), |index| compare(positions[index]));
        found.map(|index| Place { chunk, index }).map_err(|index| Place { chunk, index })
    }

    /// The place before the first entry that is not less than the target, or that is greater if `is_after_equal`.
    pub(crate) fn bound(
        &self,
        len: usize,
        is_after_equal: bool,
        compare: &mut dyn FnMut(u32) -> Ordering,
    ) -> Place {
        let equal = if is_after_equal { Ordering::Less } else { Ordering::Greater };
        let found = self.search(len, &mut |position| match compare(position) {
            Ordering::Equal => equal,
            other => other,
        });
        found.unwrap_or_else(|place| place)
    }

    /// The position of an entry.
    pub(crate) fn find(&self, len: usize, compare: &mut dyn FnMut(u32) -> Ordering) -> Option<usize> {
        self.search(len, compare).ok().map(|place| self.position(place))
    }

    /// The position of the entry at a place.
    pub(crate) fn position(&self, place: Place) -> usize {
        self.chunks.get(place.chunk).map_or(place.index, |positions| positions[place.index] as usize)
    }

    /// The place of the first entry.
    pub(crate) fn first(len: usize) -> Option<Place> {
        (len > 0).then_some(Place { chunk: 0, index: 0 })
    }

    /// The place of the last entry.
    pub(crate) fn last(&self, len: usize) -> Option<Place> {
        let index = self.chunks.last().map_or(len, Vec::len).checked_sub(1)?;
        Some(Place { chunk: self.chunks.len().saturating_sub(1), index })
    }

    /// All positions, in order.
    pub(crate) fn positions(&self, len: usize) -> Positions<'_> {
        match self.chunks.as_slice() {
            [] => Positions::consecutive(0, len),
            chunks => Positions::chunked(&[], chunks, &[]),
        }
    }

    /// The positions of the entries from `lower`, or from the first one, up to but excluding `upper`, or to the end.
    pub(crate) fn between(&self, len: usize, lower: Option<Place>, upper: Option<Place>) -> Positions<'_> {
        let lower = lower.unwrap_or(Place { chunk: 0, index: 0 });
        if self.chunks.is_empty() {
            return Positions::consecutive(lower.index, upper.map_or(len, |upper| upper.index));
        }
        let upper = upper.unwrap_or(Place { chunk: self.chunks.len(), index: 0 });
        let first = &self.chunks[lower.chunk];
        if lower.chunk >= upper.chunk {
            let end = if lower.chunk == upper.chunk { upper.index } else { 0 };
            return Positions::chunked(first.get(lower.index..end).unwrap_or_default(), &[], &[]);
        }
        let last = self.chunks.get(upper.chunk).map_or(&[][..], |chunk| &chunk[..upper.index]);
        Positions::chunked(&first[lower.index..], &self.chunks[lower.chunk + 1..upper.chunk], last)
    }

    /// Adds the next entry of the map, the one at position `len`, at the place that a search returned.
    ///
    /// # Panics
    ///
    /// If 32-bit positions do not suffice.
    pub(crate) fn insert(&mut self, len: usize, place: Place) {
        let position = count(len + 1) - 1;
        if self.chunks.is_empty() && place.index == len {
            return;
        }
        let [Place { mut chunk, mut index }] = self.divide(len, [place]);
        if self.chunks[chunk].len() == CHUNK {
            // Keys that arrive in order fill every chunk.
            let is_last = chunk + 1 == self.chunks.len() && index == CHUNK;
            let kept = if is_last { CHUNK } else { CHUNK / 2 };
            let rest = self.chunks[chunk].split_off(kept);
            self.chunks.insert(chunk + 1, rest);
            if is_last || index > kept {
                (chunk, index) = (chunk + 1, index - kept);
            }
        }
        self.chunks[chunk].insert(index, position);
    }

    /// Removes the entry at a place. The map must move its last entry to the returned position, as `swap_remove` does.
    /// `compare` compares the entry at a position with the last one.
    pub(crate) fn swap_remove(
        &mut self,
        len: usize,
        place: Place,
        compare: &mut dyn FnMut(u32) -> Ordering,
    ) -> usize {
        let position = self.position(place);
        let last = len - 1;
        if self.chunks.is_empty() && place.index == last {
            return last;
        }
        let moved = if position == last { None } else { self.place_of(last, len, compare) };
        let [place, moved] = self.divide(len, [place, moved.unwrap_or(place)]);
        self.chunks[moved.chunk][moved.index] = position as u32;
        self.chunks[place.chunk].remove(place.index);
        self.merge(place.chunk);
        position
    }

    /// The place of the entry at `position`, for which `compare` returns `Equal` unless comparisons are inconsistent.
    fn place_of(
        &self,
        position: usize,
        len: usize,
        compare: &mut dyn FnMut(u32) -> Ordering,
    ) -> Option<Place> {
        if self.chunks.is_empty() {
            return Some(Place { chunk: 0, index: position });
        }
        let found = self.search(len, compare).ok().filter(|&place| self.position(place) == position);
        found.or_else(|| {
            let mut chunks = self.chunks.iter().enumerate();
            chunks.find_map(|(chunk, positions)| {
                let index = positions.iter().position(|&known| known as usize == position)?;
                Some(Place { chunk, index })
            })
        })
    }

    /// Divides the positions of `len` entries into chunks if they are not divided yet; converts places to the chunks.
    fn divide<const N: usize>(&mut self, len: usize, places: [Place; N]) -> [Place; N] {
        if !self.chunks.is_empty() {
            return places;
        }
        let positions: Vec<u32> = (0..count(len)).collect();
        self.chunks = positions.chunks(CHUNK).map(<[u32]>::to_vec).collect();
        places.map(|Place { index, .. }| Place { chunk: index / CHUNK, index: index % CHUNK })
    }

    /// Removes a chunk if it is empty, or joins it with a neighbor if both together are small.
    fn merge(&mut self, chunk: usize) {
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
            return;
        }
        for first in [chunk.saturating_sub(1), chunk] {
            if let [one, other, ..] = &mut self.chunks[first..]
                && one.len() + other.len() <= CHUNK / 2
            {
                one.append(other);
                self.chunks.remove(first + 1);
                return;
            }
        }
    }

    /// Moves the entries into order; `swap` exchanges the entries at two positions.
    pub(crate) fn arrange(&mut self, swap: &mut dyn FnMut(usize, usize)) {
        if !self.chunks.is_empty() {
            let mut positions = self.chunks.concat();
            self.clear();
            arrange(&mut positions, swap);
        }
    }
}

/// Moves the entry at `positions[n]` to position n, for each n. `positions` is a permutation.
fn arrange(positions: &mut [u32], swap: &mut dyn FnMut(usize, usize)) {
    for start in 0..positions.len() {
        let mut at = start;
        loop {
            let from = positions[at] as usize;
            positions[at] = at as u32;
            if from == start {
                break;
            }
            swap(at, from);
            at = from;
        }
    }
}

/// The permutation that sorts `len` entries and drops all but the last of equal ones; `None` if they are sorted and distinct.
/// `compare` compares the entries at two positions.
pub(crate) fn sort(len: usize, compare: &mut dyn FnMut(u32, u32) -> Ordering) -> Option<Sorted> {
    let count = count(len);
    if (1..count).all(|position| compare(position - 1, position) == Ordering::Less) {
        return None;
    }
    let mut sorted: Vec<u32> = (0..count).collect();
    sorted.sort_by(|&one, &other| compare(one, other));
    let mut repeated = Vec::new();
    let mut positions: Vec<u32> = Vec::with_capacity(sorted.len());
    for position in sorted {
        if let Some(before) = positions.last_mut()
            && compare(*before, position) == Ordering::Equal
        {
            repeated.push(std::mem::replace(before, position));
        } else {
            positions.push(position);
        }
    }
    let kept = positions.len();
    positions.append(&mut repeated);
    Some(Sorted { positions, kept })
}

/// A permutation that sorts entries.
pub(crate) struct Sorted {
    positions: Vec<u32>,
    /// Number of distinct entries; the entries after them are duplicates.
    pub(crate) kept: usize,
}

impl Sorted {
    /// Moves the entries into order; `swap` exchanges the entries at two positions.
    pub(crate) fn arrange(mut self, swap: &mut dyn FnMut(usize, usize)) {
        arrange(&mut self.positions, swap);
    }
}

/// Searches `low..high`, which is sorted.
fn bisect(
    mut low: usize,
    mut high: usize,
    mut compare: impl FnMut(usize) -> Ordering,
) -> Result<usize, usize> {
    while low < high {
        let middle = low + (high - low) / 2;
        match compare(middle) {
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
            Ordering::Equal => return Ok(middle),
        }
    }
    Err(low)
}

/// # Panics
///
/// If a range starts after its end, or if start and end are equal and excluded.
pub(crate) fn check_range(start_to_end: Ordering, are_excluded: bool) {
    match start_to_end {
        Ordering::Greater => panic!("range start is greater than range end in an ordered map"),
        Ordering::Equal if are_excluded => {
            panic!("range start and end are equal and excluded in an ordered map")
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "capacity overflow")]
    fn more_entries_than_positions_panic() {
        Order::new().insert(u32::MAX as usize, Place { chunk: 0, index: u32::MAX as usize });
    }

    #[test]
    fn the_last_position_can_be_used() {
        let last = u32::MAX as usize - 1;
        Order::new().insert(last, Place { chunk: 0, index: last });
    }

    #[test]
    fn chunks_stay_between_their_limits() {
        let mut order = Order::new();
        let mut keys: Vec<u32> = Vec::new();
        let mut largest = 0;
        for step in 0..60_000_u32 {
            let key = step.wrapping_mul(0x9e37_79b9) % 20_000;
            let is_growing = step / 20_000 != 1;
            match order.search(keys.len(), &mut |position| keys[position as usize].cmp(&key)) {
                Err(place) if is_growing => {
                    order.insert(keys.len(), place);
                    keys.push(key);
                }
                Ok(place) if !is_growing => {
                    let last = keys[keys.len() - 1];
                    let compare = &mut |position: u32| keys[position as usize].cmp(&last);
                    let removed = order.swap_remove(keys.len(), place, compare);
                    assert_eq!(keys.swap_remove(removed), key);
                }
                _ => {}
            }
            assert!(order.chunks.iter().all(|chunk| (1..=CHUNK).contains(&chunk.len())));
            assert!(order.chunks.windows(2).all(|pair| pair[0].len() + pair[1].len() > CHUNK / 2));
            largest = largest.max(order.chunks.len());
        }
        let sorted: Vec<u32> = order.positions(keys.len()).map(|position| keys[position]).collect();
        assert!(sorted.is_sorted_by(|one, other| one < other) && sorted.len() == keys.len());
        assert!(largest > 20, "{largest}");
    }

    #[test]
    fn sorting_keeps_the_last_of_equal_entries() {
        let mut entries = [(3, 'a'), (1, 'b'), (3, 'c'), (2, 'd'), (1, 'e'), (3, 'f')];
        let sorted =
            sort(6, &mut |one, other| entries[one as usize].0.cmp(&entries[other as usize].0)).unwrap();
        assert_eq!(sorted.kept, 3);
        sorted.arrange(&mut |one, other| entries.swap(one, other));
        assert_eq!(entries[..3], [(1, 'e'), (2, 'd'), (3, 'f')]);
        assert!(sort(3, &mut |one, other| one.cmp(&other)).is_none());
    }
}
