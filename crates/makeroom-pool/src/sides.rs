//! Pools beside the pool, for threads that would wait for each other.
//!
//! A pool has one lock. Threads that often find it taken turn aside for a while (`meetings.rs`): each has a *side*, a
//! policy with memory of its own behind a lock of its own, and takes its small blocks there. Wherever a block lies, its
//! address says so, and it is freed where it lies.
//!
//! ```text
//! allocate ─ turned aside, and small? ─ no ── core
//!                                     └ yes ─ own side ─ nothing there: new memory ─ refused: core
//! free ───── address in a side's part? ─ no ── core
//!                                      └ yes ─ that side
//! ```
//!
//! Invariants:
//! - The core is locked before any side, and one side at a time; whoever has a side alone asks for no other lock.
//! - Sides take memory from the device and give it back only while the core is locked, so what all of the pool has
//!   taken is known there, and watchers hear of one thing at a time.
//! - Large blocks are the core's alone, so all pages that are worth moving are in one place.
//! - What lies unused in sides never makes a request fail: whole pages go back to the device first, and a small block may
//!   lie in any of them.
//! - It does not make the pool grow for long either: what a side has not used of late ([`Lately`]) goes back when the core
//!   or another side needs new memory, and so does what lies unused in the core, beyond a part of it, beside a side that
//!   has grown. What it does use from time to time stays: pages that go to and fro cost more than they save.
//!
//! A thread that never meets another often never has a side, so a program of one thread gets exactly what the policy
//! decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use makeroom_core::{Address, Bytes, StreamId};
use makeroom_cuda::AddressRange;
use makeroom_place::pool::{FreeError, Patience, SMALL, Settings, Stats};

use crate::allocator::EVERY_STREAM;
use crate::core::{Core, wrong_address};
use crate::error::Result;
use crate::fork::Lock;
use crate::lately::Lately;
use crate::site::Site;

/// How many sides there are; threads share them when they are more.
pub(crate) const SIDES: usize = 64;
/// How many addresses each has: no program has so much in small blocks of one thread, and the core has the rest.
const PART: u64 = 8 << 30;
/// What may lie unused in the core when a side has grown: this much, or this part of what the core has.
const LEAST_SLACK_OF_CORE: u64 = 32 << 20;
const SLACK_OF_CORE: u64 = 8;

/// A policy with memory of its own, and how much of that it needs.
#[derive(Debug)]
struct Side {
    core: Core,
    lately: Lately,
}

/// On cache lines of its own, so that threads with different sides do not meet.
#[derive(Debug)]
#[repr(align(128))]
struct Place(Lock<Option<Side>>);

/// The sides of a pool. Those that nobody used are empty.
#[derive(Debug)]
pub(crate) struct Sides {
    /// Where their addresses begin; 0 before there are any.
    base: AtomicU64,
    places: Box<[Place]>,
}

/// Whether a block may lie in a side.
#[inline]
pub(crate) fn takes(bytes: u64, stream: StreamId) -> bool {
    bytes <= SMALL && stream != EVERY_STREAM
}

impl Sides {
    pub(crate) fn new() -> Self {
        Self { base: AtomicU64::new(0), places: (0..SIDES).map(|_| Place(Lock::new(None))).collect() }
    }

    /// The place in whose part an address lies.
    #[inline]
    fn of(&self, address: Address) -> Option<&Place> {
        let base = self.base.load(Ordering::Relaxed);
        let offset = address.0.checked_sub(base).filter(|_| base != 0)?;
        self.places.get((offset / PART) as usize)
    }

    fn number(&self, number: usize) -> &Place {
        &self.places[number % SIDES]
    }

    /// A block of a side, where memory lies free for it.
    #[inline]
    pub(crate) fn allocate_at_once(
        &self,
        number: usize,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<Address>> {
        let mut side = self.number(number).0.lock()?;
        Ok(side.as_mut().and_then(|side| side.core.allocate_at_once(bytes, stream)))
    }

    /// A block of a side with new memory, as far as the pool's limit and the device allow.
    #[cold]
    pub(crate) fn allocate_new(
        &self,
        core: &mut Core,
        number: usize,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<Address>> {
        if core.beside.is_without {
            return Ok(None);
        }
        self.make_way(core)?;
        let mut side = self.number(number).0.lock()?;
        if side.is_none() {
            *side = self.make(core, number % SIDES);
        }
        let Some(Side { core: own, .. }) = &mut *side else { return Ok(None) };
        let before = own.policy.stats().reserved;
        let others = core.policy.stats().reserved + core.beside.reserved - before;
        own.policy.set_limit(core.settings.limit.map(|limit| limit.saturating_sub(others)));
        let found = own.allocate_new(bytes, stream);
        let taken = own.policy.stats().reserved - before;
        core.set_reserved_beside(core.beside.reserved + taken);
        drop(side);
        if taken == 0 {
            return Ok(found);
        }
        self.stats(core)?;
        core.give_way(taken, LEAST_SLACK_OF_CORE.max(core.policy.stats().reserved / SLACK_OF_CORE));
        Ok(found)
    }

    /// Makes a side; `None` where the driver has no addresses for it.
    fn make(&self, core: &mut Core, number: usize) -> Option<Side> {
        if core.beside.addresses.is_none() {
            let range = core.memory.reserve_beside(Bytes::new(PART * SIDES as u64));
            core.beside.is_without = range.is_none();
            let range = range?;
            self.base.store(range.address().0, Ordering::Relaxed);
            core.beside.addresses = Some(range);
        }
        let range: &Arc<AddressRange> = core.beside.addresses.as_ref()?;
        let first = Address(range.address().0 + number as u64 * PART);
        let memory = core.memory.beside(number as u64 + 1, Arc::clone(range), (first, PART));
        Some(Side { core: Core::new(Settings::default(), memory, None), lately: Lately::new(Instant::now()) })
    }

    /// Does something with the core of the side in whose part an address lies; `None` where it lies in none.
    #[inline]
    pub(crate) fn with<T>(
        &self,
        address: Address,
        site: Site,
        work: impl FnOnce(&mut Core) -> Result<T>,
    ) -> Option<Result<T>> {
        let found = self.of(address)?;
        Some(found.0.lock().and_then(|mut place| match &mut *place {
            Some(own) => work(&mut own.core),
            None => Err(wrong_address(FreeError::Foreign(address), site, None)),
        }))
    }

    /// All sides that are in use, one after the other. The core is locked, so nobody else makes one.
    pub(crate) fn each(&self, core: &Core, mut work: impl FnMut(&mut Core)) -> Result<()> {
        self.each_side(core, |side| work(&mut side.core))
    }

    fn each_side(&self, core: &Core, mut work: impl FnMut(&mut Side)) -> Result<()> {
        // Before there are addresses there are no sides.
        let used: &[Place] = if core.beside.addresses.is_some() { &self.places } else { &[] };
        for place in used {
            if let Some(side) = &mut *place.0.lock()? {
                work(side);
            }
        }
        Ok(())
    }

    /// The figures of all of the pool.
    pub(crate) fn stats(&self, core: &mut Core) -> Result<Stats> {
        let mut sum = Stats::default();
        self.each(core, |side| sum = sum.beside(&side.policy.stats()))?;
        Ok(core.with_sides(&sum))
    }

    /// A small block of any side, where memory lies free for it: what shares a page with a block cannot be given back.
    #[cold]
    pub(crate) fn allocate_anywhere(
        &self,
        core: &Core,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<Address>> {
        let mut found = None;
        if takes(bytes, stream) {
            self.each(core, |side| {
                if found.is_none() {
                    found = side.allocate_at_once(bytes, stream);
                }
            })?;
        }
        Ok(found)
    }

    /// Gives what lies unused in sides back to the device, and what waits for streams, as far as these have come; how much
    /// went back.
    #[cold]
    pub(crate) fn trim(&self, core: &mut Core, patience: Patience) -> Result<u64> {
        self.trim_to(core, patience, |_| 0)
    }

    /// Before the core or a side grows: it does so beside little that sides have not used of late.
    #[cold]
    pub(crate) fn make_way(&self, core: &mut Core) -> Result<()> {
        let now = Instant::now();
        self.trim_to(core, Patience::DoNotWait, |Side { core, lately }| lately.keeps(&mut core.policy, now))
            .map(drop)
    }

    fn trim_to(
        &self,
        core: &mut Core,
        patience: Patience,
        mut keeps: impl FnMut(&mut Side) -> u64,
    ) -> Result<u64> {
        let (mut reserved, before) = (0, core.beside.reserved);
        self.each_side(core, |side| {
            let keep = keeps(side);
            let Core { policy, memory, .. } = &mut side.core;
            if policy.stats().reserved > keep {
                policy.trim(memory, keep, patience);
            }
            reserved += policy.stats().reserved;
        })?;
        core.set_reserved_beside(reserved);
        Ok(before.saturating_sub(reserved))
    }

    /// Gives everything back, blocks in use as well, as the core does.
    pub(crate) fn abandon(&self, core: &mut Core) -> Result<()> {
        for place in &self.places {
            // Its end gives everything back.
            *place.0.lock()? = None;
        }
        core.set_reserved_beside(0);
        (core.beside.peak_live, core.beside.peak_reserved) = (0, 0);
        Ok(())
    }
}
