//! The physical memory of the pool: which chunks of its address range are mapped.
//!
//! reserved = mapped chunks × 32 MiB.

/// The granularity in which the pool allocates, moves and frees memory.
pub(super) const CHUNK: u64 = 32 << 20;

/// Which chunks are mapped.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    /// Indexed by address ÷ chunk. Everything beyond the end is unmapped.
    is_mapped: Vec<bool>,
    count: u64,
}

impl Chunks {
    /// How many are mapped.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The unmapped chunks that a range touches.
    pub(super) fn missing(&self, from: u64, to: u64) -> impl Iterator<Item = usize> + '_ {
        let touched = (from / CHUNK) as usize..to.div_ceil(CHUNK) as usize;
        touched.filter(|&chunk| !self.is_mapped.get(chunk).is_some_and(|&is_mapped| is_mapped))
    }

    /// The mapped chunks that are entirely within a range.
    pub(super) fn within(&self, from: u64, to: u64) -> impl Iterator<Item = usize> + '_ {
        let end = (to / CHUNK).min(self.is_mapped.len() as u64) as usize;
        (from.div_ceil(CHUNK) as usize..end).filter(|&chunk| self.is_mapped[chunk])
    }

    pub(super) fn map(&mut self, chunk: usize) {
        if self.is_mapped.len() <= chunk {
            self.is_mapped.resize(chunk + 1, false);
        }
        self.count += u64::from(!self.is_mapped[chunk]);
        self.is_mapped[chunk] = true;
    }

    pub(super) fn unmap(&mut self, chunk: usize) {
        self.count -= u64::from(self.is_mapped[chunk]);
        self.is_mapped[chunk] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_touches_more_chunks_than_lie_in_it() {
        let mut chunks = Chunks::default();
        for chunk in 0..4 {
            chunks.map(chunk);
        }
        chunks.unmap(1);
        assert_eq!(chunks.count(), 3);
        assert_eq!(chunks.missing(0, 5 * CHUNK).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(chunks.missing(CHUNK - 1, CHUNK).count(), 0);
        assert_eq!(chunks.within(1, 9 * CHUNK).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(chunks.within(1, CHUNK).count(), 0);
    }
}
