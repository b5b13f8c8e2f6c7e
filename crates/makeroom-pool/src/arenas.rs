//! Per-thread arenas, used under contention.
//!
//! A pool has one lock, around its *core*. Threads that often find it taken switch to an arena for a while
//! (`contention.rs`). An arena (`Arena`) is a policy with its own memory and its own lock, and serves small blocks. A
//! block's address tells which arena it belongs to, and it is freed there.
//!
//! ```text
//! allocate ─ thread uses an arena, and small? ─ no ── core
//!                                             └ yes ─ its arena ─ nothing free: new memory ─ failed: core
//! free ───── address in an arena's range? ─ no ── core
//!                                         └ yes ─ that arena
//! ```
//!
//! Invariants:
//! - Lock order: the core, then one arena at a time. A thread that holds an arena without the core takes no other
//!   lock.
//! - Arenas take and release device memory only with the core locked. So the pool's total is known there, and
//!   watchers are called one at a time.
//! - Large blocks are in the core only, so all pages worth moving are in one place.
//! - Memory cached in arenas never makes a request fail: whole pages are released to the device first, and a small
//!   block may be placed in any arena.
//! - It does not make the pool grow for long either: memory that an arena has not used recently ([`RecentUse`]) is
//!   released when the core or another arena needs new memory, and so is memory cached in the core, above a
//!   threshold, when an arena has grown. Memory that is used from time to time stays: moving pages back and forth
//!   costs more than it saves.
//!
//! A thread without contention never uses an arena, so a single-threaded program gets exactly what the policy
//! decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use makeroom_core::{Address, Bytes, StreamId};
use makeroom_cuda::AddressRange;
use makeroom_place::pool::{FreeError, SMALL, Settings, Stats, Timeout};

use crate::allocator::EVERY_STREAM;
use crate::core::{Core, wrong_address};
use crate::error::Result;
use crate::fork::Lock;
use crate::recent_use::RecentUse;
use crate::site::Site;

/// Number of arenas; if there are more threads, they share.
pub(crate) const SIDES: usize = 64;
/// Address space per arena: no thread has this much in small blocks, and the core serves the rest.
const PART: u64 = 8 << 30;
/// Memory that may stay cached in the core when an arena has grown: this much, or this fraction of the core's (1/8).
const LEAST_SLACK_OF_CORE: u64 = 32 << 20;
const SLACK_OF_CORE: u64 = 8;

/// An arena: a policy with its own memory, and its recent use.
#[derive(Debug)]
struct Arena {
    core: Core,
    recent_use: RecentUse,
}

/// Aligned to cache lines, to avoid false sharing between arenas.
#[derive(Debug)]
#[repr(align(128))]
struct ArenaSlot(Lock<Option<Arena>>);

/// The arenas of a pool. Unused ones are empty.
#[derive(Debug)]
pub(crate) struct Arenas {
    /// Start of their address range; 0 before it is reserved.
    base: AtomicU64,
    places: Box<[ArenaSlot]>,
}

/// Whether a block may be in an arena.
#[inline]
pub(crate) fn takes(bytes: u64, stream: StreamId) -> bool {
    bytes <= SMALL && stream != EVERY_STREAM
}

impl Arenas {
    pub(crate) fn new() -> Self {
        Self { base: AtomicU64::new(0), places: (0..SIDES).map(|_| ArenaSlot(Lock::new(None))).collect() }
    }

    /// The arena whose range contains an address.
    #[inline]
    fn slot_of(&self, address: Address) -> Option<&ArenaSlot> {
        let base = self.base.load(Ordering::Relaxed);
        let offset = address.0.checked_sub(base).filter(|_| base != 0)?;
        self.places.get((offset / PART) as usize)
    }

    fn number(&self, number: usize) -> &ArenaSlot {
        &self.places[number % SIDES]
    }

    /// Allocates from an arena's free memory.
    #[inline]
    pub(crate) fn allocate_at_once(
        &self,
        number: usize,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<Address>> {
        let mut arena = self.number(number).0.lock()?;
        Ok(arena.as_mut().and_then(|arena| arena.core.allocate_at_once(bytes, stream)))
    }

    /// Allocates from an arena with new memory, if the pool's limit and the device allow it.
    #[cold]
    pub(crate) fn allocate_new(
        &self,
        core: &mut Core,
        number: usize,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<Address>> {
        if core.arena_totals.is_without {
            return Ok(None);
        }
        self.make_way(core)?;
        let mut arena = self.number(number).0.lock()?;
        if arena.is_none() {
            *arena = self.make(core, number % SIDES);
        }
        let Some(Arena { core: own, .. }) = &mut *arena else { return Ok(None) };
        let before = own.policy.stats().reserved;
        let others = core.policy.stats().reserved + core.arena_totals.reserved - before;
        own.policy.set_limit(core.settings.limit.map(|limit| limit.saturating_sub(others)));
        let found = own.allocate_new(bytes, stream);
        let taken = own.policy.stats().reserved - before;
        core.set_arena_reserved(core.arena_totals.reserved + taken);
        drop(arena);
        if taken == 0 {
            return Ok(found);
        }
        self.stats(core)?;
        core.give_way(taken, LEAST_SLACK_OF_CORE.max(core.policy.stats().reserved / SLACK_OF_CORE));
        Ok(found)
    }

    /// Creates an arena; `None` if the driver has no addresses for it.
    fn make(&self, core: &mut Core, number: usize) -> Option<Arena> {
        if core.arena_totals.addresses.is_none() {
            let range = core.memory.reserve_arena_addresses(Bytes::new(PART * SIDES as u64));
            core.arena_totals.is_without = range.is_none();
            let range = range?;
            self.base.store(range.address().0, Ordering::Relaxed);
            core.arena_totals.addresses = Some(range);
        }
        let range: &Arc<AddressRange> = core.arena_totals.addresses.as_ref()?;
        let first = Address(range.address().0 + number as u64 * PART);
        let memory = core.memory.for_arena(number as u64 + 1, Arc::clone(range), (first, PART));
        Some(Arena {
            core: Core::new(Settings::default(), memory, None),
            recent_use: RecentUse::new(Instant::now()),
        })
    }

    /// Runs `work` on the arena whose range contains an address; `None` if it is in none.
    #[inline]
    pub(crate) fn with<T>(
        &self,
        address: Address,
        site: Site,
        work: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Option<Result<T>> {
        let found = self.slot_of(address)?;
        Some(found.0.lock().and_then(|mut place| match &mut *place {
            Some(own) => work(&mut own.core),
            None => Err(wrong_address(FreeError::Foreign(address), site, None)),
        }))
    }

    /// Runs `work` on all arenas in use, one after another. The core is locked, so none can be created in between.
    pub(crate) fn each(&self, core: &Core, mut work: impl FnMut(&mut Core)) -> Result<()> {
        self.each_side(core, |arena| work(&mut arena.core))
    }

    fn each_side(&self, core: &Core, mut work: impl FnMut(&mut Arena)) -> Result<()> {
        // Without an address range there are no arenas.
        let used: &[ArenaSlot] = if core.arena_totals.addresses.is_some() { &self.places } else { &[] };
        for place in used {
            if let Some(arena) = &mut *place.0.lock()? {
                work(arena);
            }
        }
        Ok(())
    }

    /// Statistics of the whole pool.
    pub(crate) fn stats(&self, core: &mut Core) -> Result<Stats> {
        let mut sum = Stats::default();
        self.each(core, |arena| sum = sum.plus(&arena.policy.stats()))?;
        Ok(core.with_arenas(&sum))
    }

    /// Allocates a small block from any arena's free memory: pages shared with a live block cannot be released.
    #[cold]
    pub(crate) fn allocate_anywhere(
        &self,
        core: &Core,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<Address>> {
        let mut found = None;
        if takes(bytes, stream) {
            self.each(core, |arena| {
                if found.is_none() {
                    found = arena.allocate_at_once(bytes, stream);
                }
            })?;
        }
        Ok(found)
    }

    /// Releases the arenas' cached memory to the device, including memory whose streams the GPU has passed. Returns
    /// the bytes released.
    #[cold]
    pub(crate) fn trim(&self, core: &mut Core, timeout: Timeout) -> Result<u64> {
        self.trim_to(core, timeout, |_| 0)
    }

    /// Trims the arenas to their recent use, before the core or an arena grows.
    #[cold]
    pub(crate) fn make_way(&self, core: &mut Core) -> Result<()> {
        let now = Instant::now();
        self.trim_to(core, Timeout::DoNotWait, |Arena { core, recent_use }| {
            recent_use.keeps(&mut core.policy, now)
        })
        .map(drop)
    }

    fn trim_to(
        &self,
        core: &mut Core,
        timeout: Timeout,
        mut keeps: impl FnMut(&mut Arena) -> u64,
    ) -> Result<u64> {
        let (mut reserved, before) = (0, core.arena_totals.reserved);
        self.each_side(core, |arena| {
            let keep = keeps(arena);
            let Core { policy, memory, .. } = &mut arena.core;
            if policy.stats().reserved > keep {
                policy.trim(memory, keep, timeout);
            }
            reserved += policy.stats().reserved;
        })?;
        core.set_arena_reserved(reserved);
        Ok(before.saturating_sub(reserved))
    }

    /// Releases everything, including live blocks, as the core does.
    pub(crate) fn abandon(&self, core: &mut Core) -> Result<()> {
        for place in &self.places {
            // Dropping the arena releases everything.
            *place.0.lock()? = None;
        }
        core.set_arena_reserved(0);
        (core.arena_totals.peak_live, core.arena_totals.peak_reserved) = (0, 0);
        Ok(())
    }
}
