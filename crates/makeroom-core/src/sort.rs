//! Stable sorting with little machine code, for short lists of which there are many kinds.
//!
//! The compiler generates the standard library's sort, about 4 KiB, once for each type and each comparison. Here, one instance
//! sorts positions and calls the comparison through a pointer; only moving the elements is generated for each type. It takes
//! the same number of comparisons, each slightly slower: use the standard library's sort for lists that grow with a
//! recording's events.

use std::cmp::Ordering;

/// Sorts a slice with little machine code.
pub trait SortCompact<T> {
    /// Like `sort_by`.
    fn sort_compact_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Like `sort_by_key`.
    fn sort_compact_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> SortCompact<T> for [T] {
    fn sort_compact_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let order = sorted_positions(self.len(), &mut |one, two| compare(&self[one], &self[two]));
        rearrange(self, order);
    }

    fn sort_compact_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.sort_compact_by(|one, two| key(one).cmp(&key(two)));
    }
}

/// The positions of elements in the order in which they belong.
#[inline(never)]
fn sorted_positions(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&one, &two| compare(one, two));
    order
}

/// Moves the element at `order[place]` to each `place`, cycle by cycle.
fn rearrange<T>(elements: &mut [T], mut order: Vec<usize>) {
    for start in 0..order.len() {
        let mut hole = start;
        loop {
            // A place that has its element is its own source, so that no cycle is followed twice.
            let source = std::mem::replace(&mut order[hole], hole);
            if source == start || source == hole {
                break;
            }
            elements.swap(hole, source);
            hole = source;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All lists of up to six elements with four keys: sorted as by the standard library, with equal keys in their order.
    #[test]
    fn it_sorts_as_the_standard_library_does() {
        for count in 0_u32..=6 {
            for number in 0..4_u32.pow(count) {
                let list: Vec<(u32, u32)> =
                    (0..count).map(|place| (number / 4_u32.pow(place) % 4, place)).collect();
                let (mut ours, mut theirs) = (list.clone(), list);
                ours.sort_compact_by_key(|&(key, _)| key);
                theirs.sort_by_key(|&(key, _)| key);
                assert_eq!(ours, theirs);
                ours.sort_compact_by(|one, two| two.0.cmp(&one.0));
                theirs.sort_by_key(|&(key, _)| std::cmp::Reverse(key));
                assert_eq!(ours, theirs);
            }
        }
    }

    #[test]
    fn long_lists_and_owned_elements_work() {
        let mut list: Vec<String> =
            (0_u64..10_000).map(|number| (number.wrapping_mul(2_654_435_761) % 9_973).to_string()).collect();
        let mut expected = list.clone();
        list.sort_compact_by(Ord::cmp);
        expected.sort();
        assert_eq!(list, expected);
    }
}
