//! One device's pools: the default one for tensors, and PyTorch's private memory pools.
//!
//! A PyTorch memory pool (for a captured graph, or `torch.cuda.MemPool`) has its own policy and memory. A graph uses
//! the addresses of its capture whenever it is replayed, even those of tensors that were freed. So none of the pool's
//! memory is unmapped, moved or released until the pool is released.
//!
//! PyTorch passes a C++ predicate over streams that decides which allocations go to a pool. It is not called here,
//! because that would require the layout of `std::function`. But its meaning is known: for a capture, that the stream
//! is being captured; for `use_mem_pool`, that the thread is the one that began. Both are checked instead: first for
//! a pool begun by this thread, then for a capture, the latest pool first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use makeroom_core::{Address, Bytes, StreamId};
use makeroom_pool::layers::History;
use makeroom_pool::{Allocator as _, BlockState, Piece, PoolError, Site, Watcher};

use super::share;
use crate::abi::{MempoolId, RawStats};
use crate::entry::Entry;
use crate::failure::{Failure, Result};
use crate::options::Wishes;

/// A watcher that keeps memory mapped while a graph may use it.
#[derive(Debug)]
struct Keeper {
    keeps: AtomicBool,
    history: Option<Arc<History>>,
}

impl Watcher for Keeper {
    fn may_unmap(&self) -> bool {
        !self.keeps.load(Ordering::Relaxed)
    }

    fn mapped(&self, address: Address, piece: Piece) {
        if let Some(history) = &self.history {
            history.mapped(address, piece);
        }
    }

    fn unmapped(&self, address: Address, piece: Piece) {
        if let Some(history) = &self.history {
            history.unmapped(address, piece);
        }
    }
}

/// A PyTorch memory pool. `users` counts begins minus releases.
#[derive(Debug)]
struct Private {
    id: MempoolId,
    entry: Arc<Entry>,
    keeper: Arc<Keeper>,
    users: usize,
}

/// The state under the lock: the pools, and those begun and not ended, in that order.
#[derive(Debug, Default)]
struct Privates {
    pools: Vec<Private>,
    begun: Vec<(MempoolId, ThreadId)>,
}

/// One device's pools.
#[derive(Debug)]
pub(super) struct Device {
    number: i32,
    wishes: Wishes,
    default: Arc<Entry>,
    total: Bytes,
    limit: Mutex<Option<Bytes>>,
    privates: Mutex<Privates>,
    /// Number of private pools, and of begun ones: while there are none, the lock is not taken.
    private_count: AtomicUsize,
    begun_count: AtomicUsize,
}

impl Device {
    pub(super) fn new(number: i32, wishes: Wishes) -> Result<Self> {
        let default = Arc::new(Entry::new(number, wishes)?);
        let device = default.pool.driver().device(number).map_err(PoolError::from)?;
        let total = device.total_memory().map_err(PoolError::from)?;
        Ok(Self {
            number,
            wishes,
            default,
            total,
            limit: Mutex::new(wishes.limit),
            privates: Mutex::default(),
            private_count: AtomicUsize::new(0),
            begun_count: AtomicUsize::new(0),
        })
    }

    pub(super) fn allocate_for_tensor(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address> {
        let entry = self.pool_for(stream);
        self.share_limit(&entry)?;
        match entry.allocator.allocate(bytes, stream, site) {
            Err(error) if error.is_out_of_memory() && self.make_way(&entry) => {
                self.share_limit(&entry)?;
                Ok(entry.allocator.allocate(bytes, stream, site)?)
            }
            other => Ok(other?),
        }
    }

    /// # Safety
    ///
    /// As [`makeroom_pool::Allocator::free`].
    pub(super) unsafe fn free(&self, address: Address, stream: StreamId, site: Site) -> Result<()> {
        let entry = self.pool_of(address);
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { entry.allocator.free(address, stream, site) }?)
    }

    pub(super) fn record_stream(&self, address: Address, stream: StreamId) -> Result<()> {
        Ok(self.pool_of(address).allocator.record_stream(address, stream)?)
    }

    pub(super) fn reaches(&self, address: Address) -> bool {
        self.pools().iter().any(|(entry, _)| entry.allocator.reaches(address))
    }

    /// The live block that contains an address.
    pub(super) fn block_around(&self, address: Address) -> Option<(Address, u64)> {
        if !self.reaches(address) {
            return None;
        }
        let snapshot = self.pool_of(address).pool.snapshot();
        let mut blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let found =
            blocks.find(|block| address >= block.address && address.0 - block.address.0 < block.size)?;
        matches!(found.state, BlockState::Live { .. }).then_some((found.address, found.size))
    }

    /// Starts allocating to a pool, created if new.
    pub(super) fn begin_pool(&self, id: MempoolId) -> Result<()> {
        let mut privates = self.lock();
        if let Some(known) = privates.pools.iter_mut().find(|known| known.id == id) {
            known.users += 1;
            known.keeper.keeps.store(true, Ordering::Relaxed);
        } else {
            let history = (self.wishes.history > 0).then(|| History::new(self.wishes.history));
            let keeper = Arc::new(Keeper { keeps: AtomicBool::new(true), history: history.clone() });
            let wishes = Wishes { limit: None, spill: None, ..self.wishes };
            let entry = Arc::new(Entry::watched(self.number, wishes, history, Some(keeper.clone()))?);
            privates.pools.push(Private { id, entry, keeper, users: 1 });
        }
        privates.begun.push((id, thread::current().id()));
        self.count(&privates);
        Ok(())
    }

    pub(super) fn end_pool(&self, id: MempoolId) -> Result<()> {
        let mut privates = self.lock();
        let last = privates.begun.iter().rposition(|(begun, _)| *begun == id);
        privates.begun.remove(last.ok_or_else(|| unknown(id, "begun"))?);
        self.count(&privates);
        Ok(())
    }

    /// Drops a user. After the last, the pool's memory stays until it is needed or the cache is emptied, as in
    /// PyTorch.
    pub(super) fn release_pool(&self, id: MempoolId) -> Result<()> {
        let mut privates = self.lock();
        let known = privates.pools.iter_mut().find(|known| known.id == id && known.users > 0);
        let known = known.ok_or_else(|| unknown(id, "in use"))?;
        known.users -= 1;
        if known.users == 0 {
            known.keeper.keeps.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Releases cached memory to the device, except memory that graphs may use.
    pub(super) fn empty_cache(&self) {
        self.default.allocator.trim(0);
        self.drop_released();
    }

    pub(super) fn set_fraction(&self, fraction: f64) -> Result<()> {
        let asked = (fraction < 1.0).then(|| share(self.total, fraction));
        let limit = [asked, self.wishes.limit].into_iter().flatten().min();
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = limit;
        Ok(self.default.pool.set_limit(limit)?)
    }

    /// All pools, the default one first.
    pub(super) fn pools(&self) -> Vec<(Arc<Entry>, (u64, u64))> {
        let mut pools = vec![(self.default.clone(), (0, 0))];
        if self.private_count.load(Ordering::Acquire) > 0 {
            let privates = self.lock();
            pools.extend(
                privates.pools.iter().map(|known| (known.entry.clone(), (known.id.first, known.id.second))),
            );
        }
        pools
    }

    pub(super) fn stats(&self) -> RawStats {
        let add = |sum: RawStats, more: RawStats| RawStats {
            size: sum.size,
            live: sum.live + more.live,
            pending: sum.pending + more.pending,
            rounding: sum.rounding + more.rounding,
            reserved: sum.reserved + more.reserved,
            cached: sum.cached + more.cached,
            peak_live: sum.peak_live + more.peak_live,
            peak_reserved: sum.peak_reserved + more.peak_reserved,
            blocks: sum.blocks + more.blocks,
            allocations: sum.allocations + more.allocations,
            refusals: sum.refusals + more.refusals,
            spilled: sum.spilled + more.spilled,
            peak_spilled: sum.peak_spilled + more.peak_spilled,
            driver_nanoseconds: sum.driver_nanoseconds + more.driver_nanoseconds,
        };
        let figures = self.pools().into_iter().map(|(entry, _)| entry.stats());
        figures.reduce(add).unwrap_or_default()
    }

    pub(super) fn reset_peaks(&self) {
        for (entry, _) in self.pools() {
            entry.pool.reset_peaks();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Privates> {
        self.privates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, privates: &Privates) {
        self.private_count.store(privates.pools.len(), Ordering::Release);
        self.begun_count.store(privates.begun.len(), Ordering::Release);
    }

    /// The pool that serves a stream now.
    #[inline]
    fn pool_for(&self, stream: StreamId) -> Arc<Entry> {
        if self.begun_count.load(Ordering::Acquire) == 0 {
            return self.default.clone();
        }
        self.begun_pool_for(stream).unwrap_or_else(|| self.default.clone())
    }

    #[cold]
    fn begun_pool_for(&self, stream: StreamId) -> Option<Arc<Entry>> {
        let privates = self.lock();
        let this_thread = thread::current().id();
        let own = privates.begun.iter().rfind(|(_, began)| *began == this_thread);
        let begun =
            own.or_else(|| privates.begun.last().filter(|_| self.default.pool.is_capturing(stream)))?;
        privates.pools.iter().find(|known| known.id == begun.0).map(|known| known.entry.clone())
    }

    /// The pool that an address belongs to; the default pool for foreign addresses, which it rejects.
    #[inline]
    fn pool_of(&self, address: Address) -> Arc<Entry> {
        if self.private_count.load(Ordering::Acquire) == 0 {
            return self.default.clone();
        }
        let privates = self.lock();
        let holder = privates.pools.iter().find(|known| known.entry.allocator.reaches(address));
        holder.map_or_else(|| self.default.clone(), |known| known.entry.clone())
    }

    /// The limit applies to all pools together: each gets the rest that the others leave.
    fn share_limit(&self, entry: &Arc<Entry>) -> Result<()> {
        if self.private_count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let limit = *self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let others = || {
            let pools = self.pools();
            let others = pools.iter().filter(|(other, _)| !Arc::ptr_eq(other, entry));
            others.map(|(other, _)| other.allocator.stats().reserved).sum::<u64>()
        };
        let left = limit.map(|limit| Bytes::new(limit.get().saturating_sub(others())));
        Ok(entry.pool.set_limit(left)?)
    }

    /// A pool is out of memory: the others release their cached memory. Returns whether there was any.
    fn make_way(&self, entry: &Arc<Entry>) -> bool {
        let cached = if Arc::ptr_eq(entry, &self.default) { 0 } else { self.default.allocator.trim(0) };
        cached + self.drop_released() > 0
    }

    /// Releases the cached memory of released pools, and drops the empty ones. Returns the bytes released.
    fn drop_released(&self) -> u64 {
        if self.private_count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut privates = self.lock();
        let released = privates.pools.iter().filter(|known| known.users == 0);
        let trimmed = released.map(|known| known.entry.allocator.trim(0)).sum::<u64>();
        let (mut dropped, mut kept) = (Vec::new(), Vec::new());
        for known in privates.pools.drain(..) {
            let is_done = known.users == 0 && known.entry.allocator.stats().live == 0;
            if is_done { &mut dropped } else { &mut kept }.push(known);
        }
        privates.pools = kept;
        self.count(&privates);
        drop(privates);
        // Dropping a pool releases the rest of its memory.
        let rest = dropped.iter().map(|known| known.entry.allocator.stats().reserved).sum::<u64>();
        drop(dropped);
        trimmed + rest
    }
}

#[cold]
fn unknown(id: MempoolId, what: &str) -> Failure {
    Failure::argument(format!("the memory pool ({}, {}) is not {what}", id.first, id.second))
}
