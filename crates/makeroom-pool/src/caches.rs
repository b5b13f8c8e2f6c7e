//! Blocks that threads keep for themselves while they would wait for each other.
//!
//! A pool has one lock. A thread that finds it taken, or waited for, turns to its cache for a while (`meetings.rs`): what
//! it frees stays there, and what it asks for is looked for there. A thread that never meets another never has a cache,
//! so a program of one thread gets exactly what the policy decides.
//!
//! ```text
//! allocate ─ lock free? ── yes ─ policy
//!                      └── no ── cache ─ miss ─ policy, and the block becomes known
//! free ───── lock free? ── yes ─ policy
//!                      └── no ── known? ─ yes ─ cache ─ full ─ policy, half of it at once
//!                                       └ no ── policy
//! ```
//!
//! Only *known* blocks go to a cache: those that were handed out while threads met. For the policy they are all in
//! use, so nothing of it changes while they come and go. Before the policy would move pages, grow, wait or fail, caches
//! are emptied into it one after the other until it need not, and before anybody looks at its figures all are: what
//! they hold is never the reason for taking more memory. Peaks of live bytes alone may count it: at most
//! [`MOST_BYTES`] for each cache.
//!
//! Sizes are rounded up to eight steps per power of two for known blocks, and a kept block may be a quarter larger than
//! needed, so that what was freed fits what is asked for next. That is rounding, not live memory: the policy is told
//! the true sizes before its figures are read.

use std::sync::atomic::{AtomicUsize, Ordering};

use makeroom_core::{Address, StreamId};

use crate::allocator::EVERY_STREAM;
use crate::blocks::{Blocks, Removal};
use crate::error::Result;
use crate::fork::Lock;

/// How many caches there are; threads share them when they are more.
const CACHES: usize = 64;
/// No larger block is kept: there are few of them, and they are much.
const LARGEST: u64 = 1 << 20;
/// A kept block serves requests that leave up to this part of them unused.
const SPARE: u64 = 4;
/// What a cache holds at most.
const MOST_BLOCKS: usize = 128;
const MOST_BYTES: u64 = 16 << 20;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// Which cache is this thread's.
fn own_cache() -> usize {
    THREAD.with(|thread| *thread) % CACHES
}

/// The size that a known block has for the policy; `None` where the block is not to be known.
pub(crate) fn size_of_known(bytes: u64, stream: StreamId) -> Option<u64> {
    if bytes > LARGEST || stream == EVERY_STREAM {
        return None;
    }
    let step = (bytes.max(1).next_power_of_two() / 16).max(512);
    Some(bytes.max(1).next_multiple_of(step))
}

/// What is known of a block that the policy takes to be in use.
///
/// `requested ≤ size`; a block that `is_kept` is in exactly one cache, or on its way into or out of it.
#[derive(Debug)]
struct Known {
    size: u64,
    requested: u64,
    is_kept: bool,
}

/// A block in a cache, usable at once on its stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) address: Address,
    pub(crate) stream: StreamId,
    size: u64,
}

/// What a free found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// The block is kept.
    Kept,
    /// The block is kept, and half of the cache has to go to the policy.
    Full,
    /// The block is the policy's.
    Unknown,
    /// The block is not in use.
    NotInUse,
}

/// What a block was that is the policy's alone now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgotten {
    /// It was that before.
    Unknown,
    /// In use, and so much was asked for.
    InUse { requested: u64 },
    /// Kept: it stays known.
    NotInUse,
}

/// `bytes = Σ blocks.size`
#[derive(Debug, Default)]
struct Cache {
    blocks: Vec<Kept>,
    bytes: u64,
}

#[derive(Debug)]
#[repr(align(128))]
struct OfThread(Lock<Cache>);

/// The caches of a pool.
#[derive(Debug)]
pub(crate) struct Caches {
    of_threads: Box<[OfThread]>,
    known: Blocks<Known>,
    /// How many blocks are known; none in a program whose threads do not meet.
    count: AtomicUsize,
}

impl Caches {
    pub(crate) fn new() -> Self {
        let of_threads = (0..CACHES).map(|_| OfThread(Lock::new(Cache::default()))).collect();
        Self { of_threads, known: Blocks::new(), count: AtomicUsize::new(0) }
    }

    /// Whether there is anything here at all.
    #[inline]
    pub(crate) fn are_used(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn of_thread(&self) -> &Lock<Cache> {
        &self.of_threads[own_cache()].0
    }

    /// A block that this thread keeps and that fits.
    pub(crate) fn take(&self, bytes: u64, stream: StreamId) -> Result<Option<Address>> {
        let Some(size) = size_of_known(bytes, stream) else { return Ok(None) };
        let found = {
            let mut cache = self.of_thread().lock()?;
            let sizes = size..=size + size / SPARE;
            let fits = |kept: &Kept| sizes.contains(&kept.size) && kept.stream == stream;
            let Some(place) = cache.blocks.iter().rposition(fits) else { return Ok(None) };
            let kept = cache.blocks.swap_remove(place);
            cache.bytes -= kept.size;
            kept.address
        };
        self.known.look(found, |known| {
            if let Some(known) = known {
                (known.requested, known.is_kept) = (bytes, false);
            }
        })?;
        Ok(Some(found))
    }

    /// A block of the policy's was handed out with a size for known blocks.
    pub(crate) fn learn(&self, address: Address, size: u64, requested: u64) -> Result<()> {
        self.known.insert(address, Known { size, requested, is_kept: false })?;
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Keeps a block that was freed on a stream, if it is known.
    pub(crate) fn keep(&self, address: Address, stream: StreamId) -> Result<Keeping> {
        if stream == EVERY_STREAM {
            return Ok(Keeping::Unknown);
        }
        let found = self.known.look(address, |known| {
            known.map(|known| (known.size, std::mem::replace(&mut known.is_kept, true)))
        })?;
        let size = match found {
            None => return Ok(Keeping::Unknown),
            Some((_, true)) => return Ok(Keeping::NotInUse),
            Some((size, false)) => size,
        };
        let mut cache = self.of_thread().lock()?;
        cache.blocks.push(Kept { address, stream, size });
        cache.bytes += size;
        Ok(if cache.is_full() { Keeping::Full } else { Keeping::Kept })
    }

    /// Takes the older half out of this thread's cache. The core is locked meanwhile: what is in no cache and not yet
    /// the policy's would be missed when its stream is retired.
    pub(crate) fn half(&self) -> Result<Vec<Kept>> {
        let mut cache = self.of_thread().lock()?;
        Ok(if cache.is_full() { cache.half() } else { Vec::new() })
    }

    /// The policy alone looks after a block from now on: what it does not know of it yet.
    pub(crate) fn forget(&self, address: Address) -> Result<Forgotten> {
        Ok(match self.known.remove_unless(address, |known| known.is_kept)? {
            None => Forgotten::Unknown,
            Some(Removal::Refused) => Forgotten::NotInUse,
            Some(Removal::Done(known)) => {
                self.count.fetch_sub(1, Ordering::Relaxed);
                Forgotten::InUse { requested: known.requested }
            }
        })
    }

    /// A block that was kept is the policy's again.
    pub(crate) fn left(&self, address: Address) -> Result<()> {
        if self.known.remove(address)?.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// What each cache keeps, taken out of it one after the other: this thread's first.
    pub(crate) fn empty(&self) -> impl Iterator<Item = Result<Vec<Kept>>> + '_ {
        let (before, from_own) = self.of_threads.split_at(own_cache());
        from_own.iter().chain(before).map(|cache| {
            let mut cache = cache.0.lock()?;
            cache.bytes = 0;
            Ok(std::mem::take(&mut cache.blocks))
        })
    }

    /// The true sizes of known blocks in use.
    pub(crate) fn true_sizes(&self, mut tell: impl FnMut(Address, u64)) -> Result<()> {
        self.known.look_at_all(|address, known| {
            if !known.is_kept {
                tell(address, known.requested);
            }
        })
    }

    /// Forgets everything: the policy begins anew.
    pub(crate) fn clear(&self) -> Result<()> {
        self.empty().try_for_each(|kept| kept.map(drop))?;
        self.known.clear()?;
        self.count.store(0, Ordering::Relaxed);
        Ok(())
    }
}

impl Cache {
    fn is_full(&self) -> bool {
        self.blocks.len() > MOST_BLOCKS || self.bytes > MOST_BYTES
    }

    /// Takes out the older half.
    fn half(&mut self) -> Vec<Kept> {
        let count = self.blocks.len().div_ceil(2);
        let half: Vec<Kept> = self.blocks.drain(..count).collect();
        self.bytes -= half.iter().map(|kept| kept.size).sum::<u64>();
        half
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    const STREAM: StreamId = StreamId(1);

    fn known(caches: &Caches, address: u64, bytes: u64) -> Address {
        let size = size_of_known(bytes, STREAM).expect("small enough");
        caches.learn(Address(address), size, bytes).expect("not forked");
        Address(address)
    }

    fn all_of(caches: &Caches) -> Vec<Kept> {
        caches.empty().flat_map(|kept| kept.expect("not forked")).collect()
    }

    fn is_kept(keeping: Keeping) -> bool {
        matches!(keeping, Keeping::Kept)
    }

    #[test]
    fn a_block_comes_back_on_its_stream_and_once() {
        let caches = Caches::new();
        let block = known(&caches, 0x1000, 1000);
        assert!(caches.take(1000, STREAM).unwrap().is_none(), "it is in use");
        assert!(is_kept(caches.keep(block, STREAM).unwrap()));
        assert!(matches!(caches.keep(block, STREAM).unwrap(), Keeping::NotInUse), "a second free");
        assert_eq!(caches.forget(block).unwrap(), Forgotten::NotInUse, "a second free below");
        assert!(caches.take(1000, StreamId(2)).unwrap().is_none(), "another stream");
        assert!(caches.take(4000, STREAM).unwrap().is_none(), "too small");
        assert!(caches.take(100, STREAM).unwrap().is_none(), "too large");
        assert_eq!(caches.take(900, STREAM).unwrap(), Some(block));
        let mut sizes = Vec::new();
        caches.true_sizes(|address, bytes| sizes.push((address, bytes))).unwrap();
        assert_eq!(sizes, [(block, 900)]);
        assert!(matches!(caches.keep(Address(0x5000), STREAM).unwrap(), Keeping::Unknown));
        assert!(matches!(caches.keep(block, EVERY_STREAM).unwrap(), Keeping::Unknown));
        assert_eq!(caches.forget(block).unwrap(), Forgotten::InUse { requested: 900 });
        assert_eq!(caches.forget(block).unwrap(), Forgotten::Unknown);
        assert!(!caches.are_used());
    }

    #[test]
    fn a_threads_own_cache_is_emptied_first() {
        let caches = Caches::new();
        let keep = |number: u64| {
            let block = known(&caches, number << 12, 512);
            assert!(is_kept(caches.keep(block, STREAM).unwrap()));
            block
        };
        let others: Vec<Address> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..4).map(|number| scope.spawn(move || keep(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let own = keep(9);
        let first = caches.empty().next().unwrap().unwrap();
        assert_eq!(first.iter().map(|kept| kept.address).collect::<Vec<_>>(), [own]);
        let mut rest: Vec<Address> = all_of(&caches).iter().map(|kept| kept.address).collect();
        rest.sort_unstable();
        assert_eq!(rest, others);
    }

    #[test]
    fn a_full_cache_lets_its_older_half_go() {
        let caches = Caches::new();
        let blocks: Vec<Address> =
            (0..=MOST_BLOCKS as u64).map(|number| known(&caches, number << 12, 512)).collect();
        let mut left = Vec::new();
        for &block in &blocks {
            if let Keeping::Full = caches.keep(block, STREAM).unwrap() {
                left.extend(caches.half().unwrap().into_iter().map(|kept| kept.address));
            }
        }
        assert_eq!(left, blocks[..left.len()]);
        assert_eq!(left.len() + all_of(&caches).len(), blocks.len());
        assert!(caches.take(512, STREAM).unwrap().is_none());
    }

    /// Whoever retires a stream empties the caches: a block on its way from a full one to the policy would be missed.
    #[test]
    fn a_full_cache_holds_everything_until_the_core_is_locked() {
        let caches = Caches::new();
        for number in 0..=MOST_BLOCKS as u64 {
            let block = known(&caches, number << 12, 512);
            let is_full = matches!(caches.keep(block, STREAM).unwrap(), Keeping::Full);
            assert_eq!(is_full, number == MOST_BLOCKS as u64);
        }
        assert_eq!(all_of(&caches).len(), MOST_BLOCKS + 1);
        assert!(caches.half().unwrap().is_empty(), "somebody else was there first");
    }

    #[test]
    fn sizes_are_rounded_by_an_eighth_at_most() {
        for bytes in (1..LARGEST).step_by(333) {
            let size = size_of_known(bytes, STREAM).expect("small enough");
            assert!(size >= bytes && size.is_multiple_of(512));
            assert!(size - bytes < 512.max(bytes / 8 + 1), "{bytes} → {size}");
        }
        assert_eq!(size_of_known(LARGEST + 1, STREAM), None);
        assert_eq!(size_of_known(512, EVERY_STREAM), None);
    }

    /// Empties all caches into the one of this thread, as the pool does by way of its policy.
    fn steal(caches: &Caches) {
        for kept in all_of(caches) {
            caches.left(kept.address).unwrap();
            let block = known(caches, kept.address.0, 512);
            assert!(!matches!(caches.keep(block, STREAM).unwrap(), Keeping::NotInUse));
        }
    }

    /// Threads pass blocks around through the caches; none is ever with two of them.
    #[test]
    fn threads_never_get_the_same_block() {
        let (threads, rounds) = if cfg!(miri) { (3, 60) } else { (8, 20_000) };
        let caches = Caches::new();
        let owners: Vec<AtomicUsize> = (0..64).map(|_| AtomicUsize::new(0)).collect();
        let owner = |block: Address| &owners[(block.0 >> 12) as usize];
        for number in 0..64 {
            let block = known(&caches, number << 12, 512);
            assert!(is_kept(caches.keep(block, STREAM).unwrap()));
        }
        std::thread::scope(|scope| {
            for thread in 1..=threads {
                let (caches, owner) = (&caches, &owner);
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for round in 0..rounds {
                        let Some(block) = caches.take(512, STREAM).unwrap() else {
                            steal(caches);
                            continue;
                        };
                        assert_eq!(owner(block).swap(thread, Ordering::Relaxed), 0, "two owners");
                        held.push(block);
                        if held.len() > 3 || round % 2 == 0 {
                            let block = held.remove(0);
                            assert_eq!(owner(block).swap(0, Ordering::Relaxed), thread);
                            assert!(!matches!(caches.keep(block, STREAM).unwrap(), Keeping::NotInUse));
                        }
                    }
                    for block in held {
                        owner(block).store(0, Ordering::Relaxed);
                        caches.keep(block, STREAM).unwrap();
                    }
                });
            }
        });
    }
}
