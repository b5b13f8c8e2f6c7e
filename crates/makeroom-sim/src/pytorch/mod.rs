//! PyTorch's native caching allocator, to the byte.
//!
//! The algorithm is deterministic given the order of requests, their streams, the completion of frees, the addresses
//! that the driver returns, and its failures. A recording contains all of these, so it can verify the model: see
//! `check`. Constants and orders here are PyTorch's; comments explain why an order matters.

mod blocks;
mod expandable;
mod release;
mod rounding;
mod seed;
mod settings;

pub(crate) use expandable::RESERVATION;
pub use settings::{Settings, SettingsError, Version};

use makeroom_core::{FastMap, PoolId};

use self::blocks::{Block, BlockId, Blocks, Pool, Use};
use self::rounding::{GRAIN, SMALL};
use crate::driver::{Driver, Refused};

/// A request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Requested bytes.
    pub size: u64,
    /// The stream.
    pub stream: u64,
    /// The pool: the default one unless a CUDA graph is captured or a `MemPool` is in use.
    pub pool: PoolId,
}

/// PyTorch's allocator on one device.
#[derive(Clone, Debug)]
pub struct Pytorch {
    settings: Settings,
    /// The process's limit; `None`: no limit but the driver's.
    limit: Option<u64>,
    /// Garbage is collected above this much reserved memory; `None`: never.
    garbage_threshold: Option<u64>,
    blocks: Blocks,
    /// The small pool of each memory pool; its large one follows. Positions ascend in the order of creation.
    pools: FastMap<PoolId, u32>,
    /// Memory pools that are no longer in use: their memory may be released to the driver.
    released_pools: Vec<PoolId>,
    /// The block of each allocation, by number.
    allocations: Vec<Option<BlockId>>,
    reserved: u64,
}

impl Pytorch {
    /// An empty allocator.
    pub fn new(settings: Settings, limit: Option<u64>) -> Self {
        let mut allocator = Self {
            garbage_threshold: limit.and_then(|limit| settings.garbage_threshold(limit)),
            settings,
            limit,
            blocks: Blocks::default(),
            pools: FastMap::default(),
            released_pools: Vec::new(),
            allocations: Vec::new(),
            reserved: 0,
        };
        allocator.pool_of(PoolId::DEFAULT, true);
        allocator
    }

    /// Memory reserved from the driver.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// The address of an allocation that is live or pending.
    pub fn address(&self, allocation: u32) -> Option<u64> {
        self.block_of(allocation).map(|id| self.blocks.get(id).address)
    }

    /// Serves a request as allocation number `allocation`, and returns its address.
    pub fn allocate_block<D: Driver>(
        &mut self,
        driver: &mut D,
        allocation: u32,
        request: Request,
    ) -> Result<u64, Refused> {
        let size = self.settings.round_size(request.size);
        let pool = self.pool_of(request.pool, size <= SMALL);
        let search = Search {
            size,
            allocation_size: self.settings.allocation_size(size),
            stream: request.stream,
            pool,
        };
        let found = match self.find_unused(&search) {
            Some(found) => {
                self.blocks.take_unused(found);
                found
            }
            None => self.obtain(driver, &search)?,
        };
        if self.should_split(found, &search) {
            let rest = self.blocks.split_off(found, size);
            self.blocks.insert_unused(rest);
        }
        let block = self.blocks.get_mut(found);
        block.usage = Use::Allocated;
        let address = block.address;
        self.remember(allocation, found);
        Ok(address)
    }

    /// The number of blocks that a copy of the allocator copies.
    pub(crate) fn block_count(&self) -> usize {
        self.blocks.count()
    }

    /// Whether a free block would serve the request, without allocating it.
    pub fn would_fit(&self, request: Request) -> bool {
        self.unused_for(request).is_some()
    }

    /// The address of the free block that would serve the request.
    pub(crate) fn unused_for(&self, request: Request) -> Option<u64> {
        let size = self.settings.round_size(request.size);
        let pool = self.pools.get(&request.pool)? + u32::from(size > SMALL);
        let search = Search { size, allocation_size: 0, stream: request.stream, pool };
        self.best_unused(&search).map(|id| self.blocks.get(id).address)
    }

    /// The program frees an allocation, pending on a stream.
    pub fn free_later(&mut self, allocation: u32) {
        if let Some(id) = self.block_of(allocation) {
            self.blocks.get_mut(id).usage = Use::Pending;
        }
    }

    /// The free of an allocation is complete.
    pub fn free(&mut self, allocation: u32) {
        let Some(id) = self.allocations.get_mut(allocation as usize).and_then(Option::take) else { return };
        self.blocks.get_mut(id).usage = Use::Unused;
        self.blocks.merge_neighbours(id);
        self.blocks.insert_unused(id);
    }

    fn block_of(&self, allocation: u32) -> Option<BlockId> {
        self.allocations.get(allocation as usize).copied().flatten()
    }

    fn remember(&mut self, allocation: u32, block: BlockId) {
        let index = allocation as usize;
        if self.allocations.len() <= index {
            self.allocations.resize(index + 1, None);
        }
        self.allocations[index] = Some(block);
    }

    /// The pool for small or large blocks of a memory pool.
    fn pool_of(&mut self, pool: PoolId, is_small: bool) -> u32 {
        // The default pool is the first, and nearly all requests are for it.
        if pool == PoolId::DEFAULT && !self.blocks.pools.is_empty() {
            return u32::from(!is_small);
        }
        let small = *self.pools.entry(pool).or_insert_with(|| {
            let index = self.blocks.pools.len() as u32;
            let is_private = pool != PoolId::DEFAULT;
            self.blocks.pools.push(Pool::new(true, is_private));
            self.blocks.pools.push(Pool::new(false, is_private));
            index
        });
        small + u32::from(!is_small)
    }

    /// Searches the pool and counts the search, which ages its blocks.
    fn find_unused(&mut self, search: &Search) -> Option<BlockId> {
        if self.garbage_threshold.is_some() {
            self.blocks.pools[search.pool as usize].searches += 1;
        }
        self.best_unused(search)
    }

    fn best_unused(&self, search: &Search) -> Option<BlockId> {
        let mut found = self.blocks.smallest_unused(search.pool, search.stream, search.size)?;
        let is_active = self.settings.expandable_segments;
        if is_active {
            // Among expandable segments, the one that would be smallest is used, so that the tail stays free.
            while self.blocks.get(found).is_expandable
                && let Some(next) = self.blocks.next_unused(found)
                && self.potential_size(next) < self.potential_size(found)
            {
                found = next;
            }
        } else {
            while self.blocks.get(found).is_expandable {
                found = self.blocks.next_unused(found)?;
            }
        }
        let available = self.blocks.get(found).size;
        let limit = self.settings.max_split_size;
        let is_oversized = search.size < limit && available >= limit;
        let is_wasteful = search.size >= limit
            && available >= search.size.saturating_add(self.settings.max_non_split_rounding);
        (!is_oversized && !is_wasteful).then_some(found)
    }

    /// Allocates memory from the driver, releasing unused memory first if the driver is out of memory.
    fn obtain<D: Driver>(&mut self, driver: &mut D, search: &Search) -> Result<BlockId, Refused> {
        if let Some(threshold) = self.garbage_threshold {
            self.collect_garbage(driver, threshold);
        }
        if let Ok(block) = self.take_from_driver(driver, search) {
            return Ok(block);
        }
        if self.release_enough(driver, search)
            && let Ok(block) = self.take_from_driver(driver, search)
        {
            return Ok(block);
        }
        // While a graph is captured, the device must not be synchronized. Frees completed by the synchronization are
        // not searched: PyTorch calls the driver right away.
        if self.blocks.pools[search.pool as usize].is_private {
            return Err(Refused);
        }
        self.release_all(driver);
        self.take_from_driver(driver, search)
    }

    fn take_from_driver<D: Driver>(&mut self, driver: &mut D, search: &Search) -> Result<BlockId, Refused> {
        // PyTorch compares with the limit even if an expandable segment would not have to grow.
        let is_over = |limit| self.reserved.saturating_add(search.allocation_size) > limit;
        if self.limit.is_some_and(is_over) || driver.is_limited() {
            return Err(Refused);
        }
        if self.settings.expandable_segments {
            return self.grow(driver, search);
        }
        let address = driver.allocate_segment(search.allocation_size, search.stream)?;
        self.reserved = self.reserved.saturating_add(search.allocation_size);
        Ok(self.blocks.add(Block {
            address,
            size: search.allocation_size,
            stream: search.stream,
            pool: search.pool,
            previous: None,
            next: None,
            usage: Use::Unused,
            is_mapped: true,
            is_expandable: false,
            segment: address,
            age_base: 0,
        }))
    }

    fn should_split(&self, id: BlockId, search: &Search) -> bool {
        let rest = self.blocks.get(id).size - search.size;
        if self.blocks.pools[search.pool as usize].is_small || self.settings.expandable_segments {
            return rest >= GRAIN;
        }
        search.size < self.settings.max_split_size && rest > SMALL
    }
}

/// A request in progress.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// The rounded size.
    size: u64,
    /// The size of a new segment for it.
    allocation_size: u64,
    stream: u64,
    pool: u32,
}
