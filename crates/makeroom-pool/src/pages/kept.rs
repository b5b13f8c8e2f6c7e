//! Ranges whose mapped slots all have memory and keep it: those of PyTorch's small blocks, which are half of all blocks.
//!
//! Reports of these blocks change nothing, so they need no lock. The ranges are published here under the lock of the pages, and
//! removed before anything in them changes. PyTorch changes its slots under the lock of its allocator, which it also holds
//! while it reports, so no report sees a range that is about to be removed.

use std::sync::atomic::{AtomicU64, Ordering};

use makeroom_place::pool::PAGE;

/// PyTorch has one such range per stream, and few programs use memory on more than four.
const MOST: usize = 4;

/// Up to four ranges, each as one number, so that no report sees the start of one with the size of another.
#[derive(Debug, Default)]
pub(super) struct KeptRanges([AtomicU64; MOST]);

/// A range is packed as its start, shifted left by this many bits, plus its size, both in units of 2 MiB. 0 means no range.
const SIZE_BITS: u32 = 24;

fn pack(start: u64, bytes: u64) -> Option<u64> {
    let is_whole = start.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE);
    let (start, size) = (start / PAGE, bytes / PAGE);
    (is_whole && size >> SIZE_BITS == 0 && start >> (u64::BITS - SIZE_BITS) == 0)
        .then_some((start << SIZE_BITS) | size)
}

#[inline]
fn contains(range: &AtomicU64, address: u64) -> bool {
    let packed = range.load(Ordering::Acquire);
    (address / PAGE).wrapping_sub(packed >> SIZE_BITS) < packed & ((1 << SIZE_BITS) - 1)
}

impl KeptRanges {
    /// Whether an address is in one of them.
    #[inline]
    pub(super) fn contain(&self, address: u64) -> bool {
        self.0.iter().any(|range| contains(range, address))
    }

    /// Removes the range that contains an address. The caller has the lock.
    pub(super) fn remove(&self, address: u64) {
        for range in self.0.iter().filter(|range| contains(range, address)) {
            range.store(0, Ordering::Release);
        }
    }

    /// Publishes ranges, as far as there is room. The caller has the lock.
    pub(super) fn set(&self, ranges: impl Iterator<Item = (u64, u64)>) {
        let all = ranges.filter_map(|(start, bytes)| pack(start, bytes)).chain(std::iter::repeat(0));
        self.0.iter().zip(all).for_each(|(range, packed)| range.store(packed, Ordering::Release));
    }
}

#[cfg(test)]
mod tests {
    use super::{KeptRanges, PAGE};

    #[test]
    fn a_removed_range_contains_nothing_and_the_fifth_has_no_room() {
        let kept = KeptRanges::default();
        assert!(!kept.contain(0) && !kept.contain(u64::MAX));
        let at = |pages: u64| 0x7f00_0000_0000 + pages * PAGE;
        let range = |number: u64| (at(100 * number), 50 * PAGE);
        kept.set((1..=5).map(range));
        let contained = |pages: u64| kept.contain(at(pages)) && kept.contain(at(pages + 1) - 1);
        assert_eq!(
            [99, 100, 149, 150, 200, 400, 500].map(contained),
            [false, true, true, false, true, true, false]
        );
        kept.remove(at(120));
        assert_eq!([100, 200].map(contained), [false, true]);
        kept.set([range(3), (at(0) + 1, PAGE), (at(0), 1 << 60)].into_iter());
        assert_eq!([0, 100, 200, 300].map(contained), [false, false, false, true]);
    }
}
