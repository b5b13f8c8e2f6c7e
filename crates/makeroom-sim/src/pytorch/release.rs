//! Releases unused memory to the driver: when it is out of memory, on `empty_cache`, and by garbage collection.

use makeroom_core::PoolId;

use super::blocks::BlockId;
use super::{Pytorch, Search};
use crate::driver::Driver;

impl Pytorch {
    /// Implements `torch.cuda.empty_cache()`: waits for pending frees, then frees every unused segment.
    pub fn empty_cache<D: Driver>(&mut self, driver: &mut D) {
        self.release_all(driver);
    }

    /// A memory pool is no longer in use: its unused memory may be released to the driver.
    pub(crate) fn let_pool_go(&mut self, pool: PoolId) {
        if !self.released_pools.contains(&pool) {
            self.released_pools.push(pool);
        }
    }

    /// Frees every unused segment of one memory pool, as a `torch.cuda.MemPool` does when it is destroyed.
    pub(crate) fn empty_pool<D: Driver>(&mut self, driver: &mut D, pool: PoolId) {
        for allocation in driver.synchronize() {
            self.free(allocation);
        }
        if let Some(&small) = self.pools.get(&pool) {
            self.release_unused(driver, small);
            self.release_unused(driver, small + 1);
        }
    }

    pub(super) fn release_all<D: Driver>(&mut self, driver: &mut D) {
        for allocation in driver.synchronize() {
            self.free(allocation);
        }
        let Some(&default) = self.pools.get(&PoolId::DEFAULT) else { return };
        // Large before small in the default pool, small before large in private ones.
        self.release_unused(driver, default + 1);
        self.release_unused(driver, default);
        let released = self.released_pools.iter().filter(|&&pool| pool != PoolId::DEFAULT);
        let mut released: Vec<u32> = released.filter_map(|pool| self.pools.get(pool).copied()).collect();
        // In the order of their creation.
        released.sort_unstable();
        for small in released {
            self.release_unused(driver, small);
            self.release_unused(driver, small + 1);
        }
    }

    fn release_unused<D: Driver>(&mut self, driver: &mut D, pool: u32) {
        for id in self.blocks.whole(pool) {
            self.release(driver, id);
        }
        if self.blocks.has_expandable {
            let expandable: Vec<BlockId> = self.blocks.expandable(pool).collect();
            for id in expandable {
                self.unmap(driver, id);
            }
            self.blocks.forget_streams(pool);
        }
    }

    /// Frees one whole segment.
    fn release<D: Driver>(&mut self, driver: &mut D, id: BlockId) {
        let block = *self.blocks.get(id);
        self.blocks.take_unused(id);
        self.blocks.remove(id);
        self.reserved = self.reserved.saturating_sub(block.size);
        driver.release(block.address, block.size);
    }

    /// With a limit on splitting, frees oversized blocks one by one until the request should fit. Returns whether
    /// enough was freed.
    pub(super) fn release_enough<D: Driver>(&mut self, driver: &mut D, search: &Search) -> bool {
        let limit = self.settings.max_split_size;
        if limit == u64::MAX {
            return false;
        }
        let wanted = search.size.max(limit);
        let single = self.blocks.smallest_unused(search.pool, search.stream, wanted);
        // Blocks of this size are never split. If a recording contains split ones, they stay, because they are partly
        // in use.
        let is_whole = |id: BlockId| {
            let block = self.blocks.get(id);
            !block.is_expandable && !block.is_split()
        };
        if let Some(id) = single.filter(|&id| is_whole(id)) {
            self.release(driver, id);
            return true;
        }
        let mut released = 0_u64;
        let oversized: Vec<BlockId> = self
            .blocks
            .largest_first(search.pool, search.stream)
            .take_while(|&id| self.blocks.get(id).size >= limit)
            .filter(|&id| is_whole(id))
            .collect();
        for id in oversized {
            if released >= wanted {
                break;
            }
            released = released.saturating_add(self.blocks.get(id).size);
            self.release(driver, id);
        }
        released >= wanted
    }

    /// Frees large unused segments, least recently used first, until reserved memory is at most the threshold.
    pub(super) fn collect_garbage<D: Driver>(&mut self, driver: &mut D, threshold: u64) {
        let Some(target) = self.reserved.checked_sub(threshold).filter(|&target| target > 0) else { return };
        let mut reclaimed = 0_u64;
        for round in self.rounds_of_garbage() {
            if reclaimed >= target {
                break;
            }
            for id in round {
                reclaimed = reclaimed.saturating_add(self.blocks.get(id).size);
                self.release(driver, id);
            }
        }
    }

    /// The segments that garbage collection would free, in order, if it never had enough. It works in rounds: each frees
    /// every segment that is at least as old as the mean of those left, even if some of them would have been enough. The
    /// age of a segment is the number of searches in its pool since it became unused. Only the default pool's large
    /// segments take part.
    fn rounds_of_garbage(&mut self) -> Vec<Vec<BlockId>> {
        let Some(&small) = self.pools.get(&PoolId::DEFAULT) else { return Vec::new() };
        let searches = self.blocks.pools[small as usize + 1].searches;
        let whole = self.blocks.whole(small + 1);
        let age = |id: BlockId| searches - self.blocks.get(id).age_base;
        let mut left: Vec<(BlockId, u64)> = whole.into_iter().map(|id| (id, age(id))).collect();
        let mut rounds = Vec::new();
        while !left.is_empty() {
            let mean = left.iter().map(|&(_, age)| age).sum::<u64>() as f64 / left.len() as f64;
            let (old, young): (Vec<_>, Vec<_>) = left.into_iter().partition(|&(_, age)| age as f64 >= mean);
            // Only a mean that floating point rounded up is older than all of them; PyTorch stops there too.
            if old.is_empty() {
                break;
            }
            rounds.push(old.into_iter().map(|(id, _)| id).collect());
            left = young;
        }
        rounds
    }

    /// The address and size of each segment that garbage collection would free, round by round.
    pub(crate) fn garbage(&mut self) -> Vec<Vec<(u64, u64)>> {
        let rounds = self.rounds_of_garbage();
        let place = |id| {
            let block = self.blocks.get(id);
            (block.address, block.size)
        };
        rounds.into_iter().map(|round| round.into_iter().map(place).collect()).collect()
    }

    /// Collects garbage above this much reserved memory from now on; `None` turns it off.
    pub(crate) fn set_garbage_threshold(&mut self, threshold: Option<u64>) {
        self.garbage_threshold = threshold;
    }
}

#[cfg(test)]
mod tests {
    use crate::{Device, Pytorch, Request, Settings};

    use super::*;

    const MIB: u64 = 1 << 20;

    struct Program {
        allocator: Pytorch,
        device: Device,
        number: u32,
    }

    impl Program {
        /// 180 MiB are reserved: 80 MiB in use, a segment of 60 MiB unused for a while, and one of 40 MiB unused since
        /// the last request.
        fn with_garbage(settings: &str, limit: u64) -> Self {
            let allocator = Pytorch::new(Settings::parse(settings).unwrap(), Some(limit));
            let mut program = Self { allocator, device: Device::new(None), number: 0 };
            let segments = [40, 60, 80].map(|size| program.allocate(size));
            program.allocator.free(segments[1]);
            program.allocator.free(segments[0]);
            for _ in 0..4 {
                let again = program.allocate(40);
                program.allocator.free(again);
            }
            program
        }

        fn allocate(&mut self, mebibytes: u64) -> u32 {
            let request = Request { size: mebibytes * MIB, stream: 0, pool: PoolId::DEFAULT };
            self.number += 1;
            self.allocator.allocate_block(&mut self.device, self.number, request).unwrap();
            self.number
        }
    }

    #[test]
    fn garbage_is_collected_oldest_first_until_the_threshold_is_met() {
        for (limit, left) in [(360, 180), (359, 120), (240, 120), (239, 80), (200, 80)] {
            let mut program = Program::with_garbage("garbage_collection_threshold:0.5", limit * MIB);
            program.allocate(100);
            assert_eq!(program.allocator.reserved() / MIB, left + 100, "limit {limit}");
        }
    }

    #[test]
    fn without_the_setting_nothing_is_collected() {
        let mut program = Program::with_garbage("", 280 * MIB);
        program.allocate(100);
        assert_eq!(program.allocator.reserved(), 280 * MIB);
    }
}
