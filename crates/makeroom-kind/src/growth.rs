//! Whether the blocks of one stack are a KV cache that grows with each token: every block is larger than the one it replaces,
//! by the same amount.
//!
//! Snapshots have the sizes that were requested. Recordings of a whole process have those of PyTorch's blocks, which can
//! be larger by any amount up to 1 MiB, so neither the growth per token nor the block size is the same for all layers. There, each
//! block is followed from token to token: the one that it replaces is the first of its stack to be freed after it was
//! allocated. Their sizes must then be on one line, up to the rounding.

use std::collections::BTreeSet;

/// A cache that grows does so at least this often.
const LEAST_GROWTHS: usize = 4;
/// PyTorch does not split a block above this size if no more than this would remain.
pub(crate) const UNSPLIT: u64 = 1 << 20;
/// It rounds smaller ones up to a multiple of this.
const ROUNDING: u64 = 512;

/// A block: the events of its allocation and of its free, and its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) born: usize,
    pub(crate) end: usize,
    pub(crate) size: u64,
}

/// The sizes that one stack allocates, in order.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    series: Series,
    chains: Chains,
}

impl Growth {
    /// Adds the next block; `is_rounded` if its size may include rounding.
    pub(crate) fn add(&mut self, block: Block, is_rounded: bool) {
        self.series.add(block);
        if is_rounded {
            self.chains.add(block);
        }
    }

    /// Whether they are a cache.
    pub(crate) fn is_cache(&self) -> bool {
        self.series.is_cache() || self.chains.are_cache()
    }
}

/// Sizes that are known exactly: every change must be the same growth.
#[derive(Debug, Default)]
struct Series {
    last: u64,
    growth: Option<u64>,
    growths: usize,
    is_uneven: bool,
    /// Blocks, and those of them that outlived the first larger one.
    blocks: usize,
    replaced: usize,
    /// Ends of the blocks of the current size.
    ends: Vec<usize>,
}

impl Series {
    fn add(&mut self, Block { born, end, size }: Block) {
        if self.is_uneven {
            return;
        }
        if self.blocks > 0 && size != self.last {
            let growth = size.checked_sub(self.last);
            if growth.is_none() || self.growth.is_some_and(|usual| growth != Some(usual)) {
                self.is_uneven = true;
                self.ends = Vec::new();
                return;
            }
            self.growth = growth;
            self.growths += 1;
            self.replaced += self.ends.iter().filter(|&&end| end > born).count();
            self.ends.clear();
        }
        self.last = size;
        self.blocks += 1;
        self.ends.push(end);
    }

    fn is_cache(&self) -> bool {
        let settled = self.blocks - self.ends.len();
        !self.is_uneven && self.growths >= LEAST_GROWTHS && self.replaced * 2 > settled
    }
}

/// Sizes that include rounding, of each block and those that replaced it.
#[derive(Debug, Default)]
struct Chains {
    sizes: Vec<Vec<u64>>,
    /// Chains that ended too soon to count are dropped, because a recording can have one for each of millions of blocks:
    /// where they were, and how many blocks they had.
    vacant: Vec<usize>,
    dropped: usize,
    /// The chains whose last block is live, by the event of its free. Blocks that are never freed have one event, so the
    /// number of the chain is part of the key.
    live: BTreeSet<(usize, usize)>,
}

impl Chains {
    fn add(&mut self, Block { born, end, size }: Block) {
        // Blocks that were freed before are replaced by none.
        while let Some(&(_, chain)) = self.live.first().filter(|(end, _)| *end <= born) {
            self.live.pop_first();
            self.drop_if_short(chain);
        }
        let replaced = self.live.first().copied().filter(|&(end, _)| end != usize::MAX);
        let chain = match replaced {
            Some(replaced) => {
                self.live.remove(&replaced);
                replaced.1
            }
            None => self.vacant.pop().unwrap_or_else(|| {
                self.sizes.push(Vec::new());
                self.sizes.len() - 1
            }),
        };
        if let Some(sizes) = self.sizes.get_mut(chain) {
            sizes.push(size);
        }
        self.live.insert((end, chain));
    }

    fn drop_if_short(&mut self, chain: usize) {
        if let Some(sizes) = self.sizes.get_mut(chain).filter(|sizes| sizes.len() <= LEAST_GROWTHS) {
            self.dropped += sizes.len();
            *sizes = Vec::new();
            self.vacant.push(chain);
        }
    }

    /// Whether most blocks are in chains that grow evenly.
    fn are_cache(&self) -> bool {
        let blocks = |chains: &mut dyn Iterator<Item = &Vec<u64>>| chains.map(Vec::len).sum::<usize>();
        let all = self.dropped + blocks(&mut self.sizes.iter());
        all > 0 && blocks(&mut self.sizes.iter().filter(|sizes| is_even_growth(sizes))) * 2 > all
    }
}

/// Whether sizes are on a rising line, up to the rounding of each.
fn is_even_growth(sizes: &[u64]) -> bool {
    let (Some(&first), Some(&last)) = (sizes.first(), sizes.last()) else { return false };
    let rounding = |size: u64| if size > UNSPLIT { UNSPLIT } else { ROUNDING };
    // The first and the last one are rounded too.
    let tolerance = rounding(first).max(rounding(last)) as f64;
    let growth = last as f64 - first as f64;
    let steps = sizes.len() - 1;
    let is_on_line = |(step, &size): (usize, &u64)| {
        (size as f64 - first as f64 - growth * step as f64 / steps as f64).abs() <= tolerance
    };
    steps >= LEAST_GROWTHS && growth > 2.0 * tolerance && sizes.iter().enumerate().all(is_on_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_cache(blocks: impl IntoIterator<Item = (usize, usize, u64)>, is_rounded: bool) -> bool {
        let mut growth = Growth::default();
        let blocks = blocks.into_iter().map(|(born, end, size)| Block { born, end, size });
        blocks.for_each(|block| growth.add(block, is_rounded));
        growth.is_cache()
    }

    #[test]
    fn a_cache_grows_evenly_and_each_block_replaces_the_previous_one() {
        for is_rounded in [false, true] {
            let grows = |life: usize, size: &dyn Fn(usize) -> u64| {
                is_cache((0..9).map(|token| (token * 10, token * 10 + life, size(token))), is_rounded)
            };
            assert!(grows(11, &|token| 4096 + token as u64 * 512));
            // Freed before the next one: scores of a longer and longer context.
            assert!(!grows(3, &|token| 4096 + token as u64 * 512));
            // Of one size, uneven, shrinking.
            assert!(!grows(11, &|_| 4096));
            assert!(!grows(11, &|token| 4096 << token));
            assert!(!grows(11, &|token| 8192 - token as u64 * 512));
            assert!(!is_cache([], is_rounded));
        }
    }

    /// The blocks of four layers over 60 tokens, each block with as much of an unsplit rest as `rest` says.
    fn layers(rest: impl Fn(usize) -> u64) -> impl Iterator<Item = (usize, usize, u64)> {
        let (layers, per_token) = (4, 96 << 10);
        (0..60 * layers).map(move |number| {
            let (token, at) = (number / layers, number * 10);
            // Freed right after the block of the next token was filled.
            let end = if token < 59 { at + layers * 10 + 2 } else { usize::MAX };
            (at, end, (3 << 20) + token as u64 * per_token + rest(number))
        })
    }

    #[test]
    fn a_cache_in_blocks_that_were_not_split_grows_too() {
        let unsplit = |number: usize| (number as u64 * 7919 % 2048) * 512;
        assert!(is_cache(layers(|_| 0), false) && is_cache(layers(|_| 0), true));
        assert!(is_cache(layers(unsplit), true));
        // Requested sizes are exact, so these are not a cache.
        assert!(!is_cache(layers(unsplit), false));
        // Blocks of one size that differ only in their unsplit rests.
        let constant = (0..60).map(|token| (token * 10, token * 10 + 12, (3 << 20) + unsplit(token)));
        assert!(!is_cache(constant, true));
    }
}
