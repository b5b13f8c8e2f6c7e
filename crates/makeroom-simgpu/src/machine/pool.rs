//! Pools of stream-ordered memory: their chunks, statistics and attributes.
//!
//! A pool allocates memory from its GPU in chunks of 32 MiB and divides them into blocks. It releases chunks when a
//! call synchronizes and the pool holds more than its threshold, when it is trimmed, and when it is destroyed and its
//! last block is freed. `reuse.rs` decides which freed memory a stream may reuse.

use makeroom_ordered::OrderedMap;
use makeroom_simcard::PAGE;

use super::pages::Region;
use super::ranges::Ranges;
use super::reuse::Pending;
use super::{BlockKind, CHUNK, Machine, PoolId};
use crate::status::{Result, Status};

/// A pool.
///
/// Invariant: `reserved.current = Σ chunks = Σ holes + Σ pending + Σ blocks rounded`.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) device: usize,
    pub(super) chunks: OrderedMap<u64, u64>,
    pub(super) holes: Ranges,
    pub(super) pending: Vec<Pending>,
    pub(super) reserved: Counter,
    pub(super) used: Counter,
    pub(super) threshold: u64,
    pub(super) largest: u64,
    pub(super) reuse: Reuse,
    access: OrderedMap<usize, u32>,
    destroyed: bool,
}

/// How a stream may reuse memory that another stream freed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reuse {
    /// After waiting for an event that follows the free.
    pub(super) follow_events: bool,
    /// After the free is complete.
    pub(super) opportunistic: bool,
    /// By making the stream wait for the other.
    pub(super) internal_dependencies: bool,
}

/// A value and its high-water mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Now.
    pub current: u64,
    /// The maximum since the last reset.
    pub high: u64,
}

impl Counter {
    pub(super) fn add(&mut self, bytes: u64) {
        self.current += bytes;
        self.high = self.high.max(self.current);
    }
}

/// The pools of a GPU: its default pool, and the one `cuMemAllocAsync` uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct DevicePools {
    pub(super) first: PoolId,
    pub(super) current: PoolId,
}

/// Attributes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolAttribute {
    /// Allow reuse of memory that another stream freed before an event that the stream waited for.
    FollowEvents,
    /// Allow reuse of memory that another stream freed once the free is complete.
    Opportunistic,
    /// Allow making a stream wait for another one that freed memory.
    InternalDependencies,
    /// Release threshold: bytes to keep when a call synchronizes.
    Threshold,
    /// Bytes reserved from the GPU.
    Reserved,
    /// High-water mark of reserved bytes.
    ReservedHigh,
    /// Bytes in use.
    Used,
    /// High-water mark of used bytes.
    UsedHigh,
}

impl PoolAttribute {
    /// The attribute with this number.
    pub fn from_number(number: u32) -> Result<Self> {
        Ok(match number {
            1 => Self::FollowEvents,
            2 => Self::Opportunistic,
            3 => Self::InternalDependencies,
            4 => Self::Threshold,
            5 => Self::Reserved,
            6 => Self::ReservedHigh,
            7 => Self::Used,
            8 => Self::UsedHigh,
            _ => return Err(Status::INVALID_VALUE),
        })
    }

    /// Whether its value has 32 bits.
    pub fn is_switch(self) -> bool {
        matches!(self, Self::FollowEvents | Self::Opportunistic | Self::InternalDependencies)
    }
}

impl Pool {
    fn new(device: usize, largest: u64) -> Self {
        Self {
            device,
            chunks: OrderedMap::new(),
            holes: Ranges::default(),
            pending: Vec::new(),
            reserved: Counter::default(),
            used: Counter::default(),
            threshold: 0,
            largest,
            reuse: Reuse { follow_events: true, opportunistic: true, internal_dependencies: true },
            access: OrderedMap::new(),
            destroyed: false,
        }
    }
}

impl Machine {
    pub(super) fn first_pool(&mut self, device: usize) -> DevicePools {
        let first = self.identities.fresh();
        self.pools.insert(first, Pool::new(device, 0));
        DevicePools { first, current: first }
    }

    pub(super) fn pool_ref(&self, pool: PoolId) -> Result<&Pool> {
        self.pools.get(&pool).filter(|pool| !pool.destroyed).ok_or(Status::INVALID_VALUE)
    }

    /// A pool, including one that is destroyed and still has blocks.
    pub(super) fn pool_mut(&mut self, pool: PoolId) -> Result<&mut Pool> {
        self.pools.get_mut(&pool).ok_or(Status::INVALID_VALUE)
    }

    /// `cuMemPoolCreate`; a `largest` of 0 means no limit.
    pub fn create_pool(&mut self, device: usize, largest: u64) -> PoolId {
        let pool = self.identities.fresh();
        self.pools.insert(pool, Pool::new(device, largest));
        pool
    }

    /// `cuMemPoolDestroy`: blocks exist until they are freed. A GPU's default pool cannot be destroyed.
    pub fn destroy_pool(&mut self, pool: PoolId) -> Result<()> {
        let device = self.pool_ref(pool)?.device;
        let pools = &mut self.device_pools[device];
        if pools.first == pool {
            return Err(Status::INVALID_VALUE);
        }
        if pools.current == pool {
            pools.current = pools.first;
        }
        self.pool_mut(pool)?.destroyed = true;
        self.shrink_pool(pool, 0)?;
        self.bury_pool(pool);
        Ok(())
    }

    /// Removes a destroyed pool that has no chunks left.
    pub(super) fn bury_pool(&mut self, pool: PoolId) {
        if self.pools.get(&pool).is_some_and(|pool| pool.destroyed && pool.chunks.is_empty()) {
            self.pools.remove(&pool);
        }
    }

    /// The default pool of a GPU.
    pub fn default_pool(&self, device: usize) -> PoolId {
        self.device_pools[device].first
    }

    /// The pool that `cuMemAllocAsync` uses.
    pub fn current_pool(&self, device: usize) -> PoolId {
        self.device_pools[device].current
    }

    /// `cuDeviceSetMemPool`.
    pub fn set_current_pool(&mut self, device: usize, pool: PoolId) -> Result<()> {
        if self.pool_ref(pool)?.device != device {
            return Err(Status::INVALID_VALUE);
        }
        self.device_pools[device].current = pool;
        Ok(())
    }

    /// `cuMemPoolGetAttribute`.
    pub fn pool_attribute(&self, pool: PoolId, attribute: PoolAttribute) -> Result<u64> {
        let pool = self.pool_ref(pool)?;
        Ok(match attribute {
            PoolAttribute::FollowEvents => u64::from(pool.reuse.follow_events),
            PoolAttribute::Opportunistic => u64::from(pool.reuse.opportunistic),
            PoolAttribute::InternalDependencies => u64::from(pool.reuse.internal_dependencies),
            PoolAttribute::Threshold => pool.threshold,
            PoolAttribute::Reserved => pool.reserved.current,
            PoolAttribute::ReservedHigh => pool.reserved.high,
            PoolAttribute::Used => pool.used.current,
            PoolAttribute::UsedHigh => pool.used.high,
        })
    }

    /// `cuMemPoolSetAttribute`: high-water marks can only be reset.
    pub fn set_pool_attribute(&mut self, pool: PoolId, attribute: PoolAttribute, value: u64) -> Result<()> {
        self.pool_ref(pool)?;
        let pool = self.pool_mut(pool)?;
        match (attribute, value) {
            (PoolAttribute::FollowEvents, _) => pool.reuse.follow_events = value != 0,
            (PoolAttribute::Opportunistic, _) => pool.reuse.opportunistic = value != 0,
            (PoolAttribute::InternalDependencies, _) => pool.reuse.internal_dependencies = value != 0,
            (PoolAttribute::Threshold, _) => pool.threshold = value,
            (PoolAttribute::ReservedHigh, 0) => pool.reserved.high = pool.reserved.current,
            (PoolAttribute::UsedHigh, 0) => pool.used.high = pool.used.current,
            _ => return Err(Status::INVALID_VALUE),
        }
        Ok(())
    }

    /// `cuMemPoolGetAccess`: a pool's own GPU always has full access.
    pub fn pool_access(&self, pool: PoolId, device: usize) -> Result<u32> {
        let pool = self.pool_ref(pool)?;
        let given = pool.access.get(&device).copied().unwrap_or(0);
        Ok(if device == pool.device { 3 } else { given })
    }

    /// `cuMemPoolSetAccess`.
    pub fn set_pool_access(&mut self, pool: PoolId, device: usize, access: u32) -> Result<()> {
        let own = self.pool_ref(pool)?.device == device;
        if ![0, 1, 3].contains(&access) {
            return Err(Status::INVALID_VALUE);
        }
        if own && access != 3 {
            return Err(Status::INVALID_DEVICE);
        }
        self.pool_mut(pool)?.access.insert(device, access);
        Ok(())
    }

    /// `cuMemPoolTrimTo`.
    pub fn trim_pool(&mut self, pool: PoolId, keep: u64) -> Result<()> {
        self.pool_ref(pool)?;
        self.shrink_pool(pool, keep)
    }

    /// Allocates chunks so that `bytes` fit contiguously.
    pub(super) fn grow_pool(&mut self, pool: PoolId, bytes: u64) -> Result<()> {
        let found = self.pool_mut(pool)?;
        let (device, most, held) = (found.device, found.largest, found.reserved.current);
        // Near the end of the GPU's memory, where a whole chunk does not fit, try just the required pages.
        let sizes = [bytes.checked_next_multiple_of(CHUNK), bytes.checked_next_multiple_of(PAGE)];
        for size in sizes.into_iter().flatten() {
            if most > 0 && held.saturating_add(size) > most {
                continue;
            }
            let Ok(frames) = self.take_frames(device, size / PAGE) else { continue };
            let Some(address) = self.space.take(size) else {
                self.give_frames(device, &frames);
                continue;
            };
            self.add_chunks(pool, address, &frames)?;
            return Ok(());
        }
        Err(Status::OUT_OF_MEMORY)
    }

    fn add_chunks(&mut self, pool: PoolId, address: u64, frames: &[u32]) -> Result<()> {
        let device = self.pool_mut(pool)?.device;
        let mut at = address;
        for part in frames.chunks((CHUNK / PAGE) as usize) {
            let bytes = part.len() as u64 * PAGE;
            self.regions.insert(at, Region { device, frames: part.to_vec() });
            self.pool_mut(pool)?.chunks.insert(at, bytes);
            at += bytes;
        }
        let pool = self.pool_mut(pool)?;
        pool.holes.insert(address, at - address);
        pool.reserved.add(at - address);
        Ok(())
    }

    /// Releases unused chunks while more than `keep` bytes are held.
    pub(super) fn shrink_pool(&mut self, pool: PoolId, keep: u64) -> Result<()> {
        let found = self.pool_mut(pool)?;
        let unused: Vec<_> = found
            .chunks
            .iter()
            .filter(|(start, bytes)| found.holes.contains(**start, **bytes))
            .map(|(start, bytes)| (*start, *bytes))
            .collect();
        for (start, bytes) in unused.into_iter().rev() {
            let found = self.pool_mut(pool)?;
            if found.reserved.current <= keep {
                break;
            }
            found.holes.take_at(start, bytes);
            found.chunks.remove(&start);
            found.reserved.current -= bytes;
            self.unmap_pages(start);
        }
        Ok(())
    }

    /// Empties a GPU's pools, because its last context is gone.
    pub(super) fn empty_pools(&mut self, device: usize) {
        let pools = &self.pools;
        let on_device = |pool: &PoolId| pools.get(pool).is_some_and(|pool| pool.device == device);
        self.blocks.retain(|_, block| match block.kind {
            BlockKind::Ordered(pool) => !on_device(&pool),
            BlockKind::Graph => block.device != device,
            _ => true,
        });
        let emptied: Vec<_> = self.pools.keys().filter(|pool| on_device(pool)).copied().collect();
        for pool in emptied {
            let Some(found) = self.pools.get_mut(&pool) else { continue };
            let chunks = std::mem::take(&mut found.chunks);
            found.holes = Ranges::default();
            found.pending.clear();
            found.reserved.current = 0;
            found.used.current = 0;
            for start in chunks.into_keys() {
                self.unmap_pages(start);
            }
            self.bury_pool(pool);
        }
        self.trim_graph_memory(device);
        self.retire_graph_ranges();
    }
}
