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
        let (Some(&default), order) = (self.pools.get(&PoolId::DEFAULT), self.pool_order.clone()) else {
            return;
        };
        // Large before small in the default pool, small before large in private ones.
        self.release_unused(driver, default + 1);
        self.release_unused(driver, default);
        for pool in order {
            if pool != PoolId::DEFAULT
                && self.released_pools.contains(&pool)
                && let Some(&small) = self.pools.get(&pool)
            {
                self.release_unused(driver, small);
                self.release_unused(driver, small + 1);
            }
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
        let single = self.blocks.candidates(search.pool, search.stream, wanted).next();
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

    /// Frees large unused segments, least recently used first, until reserved memory is below the threshold.
    pub(super) fn collect_garbage<D: Driver>(&mut self, driver: &mut D) {
        let Some(limit) = self.limit else { return };
        let threshold = (self.settings.garbage_collection_threshold * limit as f64) as u64;
        if self.reserved <= threshold {
            return;
        }
        let target = self.reserved - threshold;
        let pool = self.pool_of(PoolId::DEFAULT, false);
        let mut reclaimed = 0_u64;
        loop {
            let searches = self.blocks.pools[pool as usize].searches;
            let whole = self.blocks.whole(pool);
            let age = |id: BlockId| searches - self.blocks.get(id).age_base;
            let ages: Vec<(BlockId, u64)> = whole.into_iter().map(|id| (id, age(id))).collect();
            if ages.is_empty() || reclaimed >= target {
                return;
            }
            let mean = ages.iter().map(|&(_, age)| age).sum::<u64>() as f64 / ages.len() as f64;
            let mut is_any_released = false;
            for (id, age) in ages {
                if age as f64 >= mean {
                    reclaimed = reclaimed.saturating_add(self.blocks.get(id).size);
                    self.release(driver, id);
                    is_any_released = true;
                }
            }
            if !is_any_released {
                return;
            }
        }
    }
}
