//! The live allocations of a device during the import, by address.
//!
//! A framework may return a segment to the driver while tensors in it were never freed, as at the end of a process.
//! They end with their segment, so its range has to be searched. Most programs free segments only at their end, so nothing
//! is counted before the first search. Almost every segment is empty when it is freed, so blocks are then counted per
//! 2 MiB of address space, which is cheap; an ordered index is built only when a count shows that blocks may be left.

use std::collections::BTreeSet;

use makeroom_core::FastMap;

/// Address bits within one counted chunk.
const CHUNK_BITS: u32 = 21;
/// Larger ranges are searched with the index at once.
const MOST_CHUNKS: u64 = 4096;

/// Allocated memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) size: u64,
    /// The context it ends with; 0 if none.
    pub(super) context: u64,
}

/// Live allocations.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    by_address: FastMap<u64, Taken>,
    /// Blocks that begin in each chunk, once they are needed.
    chunks: Option<FastMap<u64, u32>>,
    /// All addresses in order, once they are needed.
    ordered: Option<BTreeSet<u64>>,
}

impl Blocks {
    pub(super) fn get(&self, address: u64) -> Option<&Taken> {
        self.by_address.get(&address)
    }

    pub(super) fn insert(&mut self, address: u64, taken: Taken) {
        if self.by_address.insert(address, taken).is_some() {
            return;
        }
        if let Some(chunks) = &mut self.chunks {
            *chunks.entry(address >> CHUNK_BITS).or_default() += 1;
        }
        if let Some(ordered) = &mut self.ordered {
            ordered.insert(address);
        }
    }

    pub(super) fn remove(&mut self, address: u64) -> Option<Taken> {
        let taken = self.by_address.remove(&address)?;
        if let Some(count) = self.chunks.as_mut().and_then(|chunks| chunks.get_mut(&(address >> CHUNK_BITS)))
        {
            *count = count.saturating_sub(1);
        }
        if let Some(ordered) = &mut self.ordered {
            ordered.remove(&address);
        }
        Some(taken)
    }

    /// The addresses of blocks that begin in a range, ascending.
    pub(super) fn inside(&mut self, address: u64, size: u64) -> Vec<u64> {
        let Some(last) = size.checked_sub(1).map(|rest| address.saturating_add(rest)) else {
            return Vec::new();
        };
        let (first_chunk, last_chunk) = (address >> CHUNK_BITS, last >> CHUNK_BITS);
        let addresses = &self.by_address;
        if last_chunk - first_chunk < MOST_CHUNKS {
            let chunks = self.chunks.get_or_insert_with(|| counted(addresses.keys().copied()));
            let is_used = |chunk: u64| chunks.get(&chunk).is_some_and(|&count| count > 0);
            if !(first_chunk..=last_chunk).any(is_used) {
                return Vec::new();
            }
        }
        let ordered = self.ordered.get_or_insert_with(|| addresses.keys().copied().collect());
        ordered.range(address..=last).copied().collect()
    }
}

/// The number of blocks that begin in each chunk.
fn counted(addresses: impl Iterator<Item = u64>) -> FastMap<u64, u32> {
    let mut chunks: FastMap<u64, u32> = FastMap::default();
    for address in addresses {
        *chunks.entry(address >> CHUNK_BITS).or_default() += 1;
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(size: u64) -> Taken {
        Taken { size, context: 0 }
    }

    #[test]
    fn blocks_are_found_by_range_before_and_after_the_index_exists() {
        let mut blocks = Blocks::default();
        let at = |mib: u64| mib << 20;
        for mib in [4, 5, 9, 20] {
            blocks.insert(at(mib), taken(at(1)));
        }
        assert_eq!(blocks.inside(at(6), at(2)), []);
        assert!(blocks.ordered.is_none(), "an empty range needs no index");
        assert_eq!(blocks.inside(at(4), at(2)), [at(4), at(5)]);
        assert_eq!(blocks.remove(at(5)), Some(taken(at(1))));
        blocks.insert(at(30), taken(1));
        assert_eq!(blocks.inside(0, u64::MAX), [at(4), at(9), at(20), at(30)]);
        assert_eq!(blocks.inside(at(9), 0), []);
        assert_eq!(blocks.remove(at(5)), None);
    }
}
