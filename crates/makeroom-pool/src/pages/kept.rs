//! Ranges in which all mapped memory is there and stays: those of PyTorch's small blocks, which are half of all blocks.
//!
//! Reports of these blocks change nothing, so they need no lock. The ranges are published here under the lock of the pages, and
//! removed before anything in them changes. PyTorch changes its slots under the lock of its allocator, which it also holds
//! while it reports, so no report sees a range that is about to be removed.

use std::sync::atomic::{AtomicU64, Ordering};

/// PyTorch has one such range per stream, and few programs use memory on more than two.
const MOST: usize = 2;

/// Up to two ranges.
#[derive(Debug, Default)]
pub(super) struct KeptRanges([Range; MOST]);

#[derive(Debug, Default)]
struct Range {
    start: AtomicU64,
    /// 0 if there is none.
    bytes: AtomicU64,
}

impl Range {
    #[inline]
    fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start.load(Ordering::Relaxed)) < self.bytes.load(Ordering::Relaxed)
    }
}

impl KeptRanges {
    /// Whether an address is in one of them.
    #[inline]
    pub(super) fn contain(&self, address: u64) -> bool {
        self.0.iter().any(|range| range.contains(address))
    }

    /// Removes the range that contains an address. The caller has the lock.
    pub(super) fn remove(&self, address: u64) {
        for range in self.0.iter().filter(|range| range.contains(address)) {
            range.bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Publishes ranges, as far as there is room. The caller has the lock.
    pub(super) fn set(&self, ranges: impl Iterator<Item = (u64, u64)>) {
        let all = ranges.map(Some).chain(std::iter::repeat(None));
        for (range, found) in self.0.iter().zip(all) {
            // Never the start of one and the size of another.
            range.bytes.store(0, Ordering::Relaxed);
            if let Some((start, bytes)) = found {
                range.start.store(start, Ordering::Release);
                range.bytes.store(bytes, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KeptRanges;

    #[test]
    fn a_removed_range_contains_nothing_and_the_third_has_no_room() {
        let kept = KeptRanges::default();
        assert!(!kept.contain(0));
        kept.set([(100, 50), (200, 50), (300, 50)].into_iter());
        assert_eq!(
            [99, 100, 149, 150, 200, 300].map(|at| kept.contain(at)),
            [false, true, true, false, true, false]
        );
        kept.remove(120);
        assert_eq!([100, 200].map(|at| kept.contain(at)), [false, true]);
        kept.set([(300, 50)].into_iter());
        assert_eq!([100, 200, 300].map(|at| kept.contain(at)), [false, false, true]);
    }
}
