//! Many threads at once: everybody's memory is nobody else's, and the books are right afterwards.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

use common::check_account;
use makeroom_core::{Address, Bytes};
use makeroom_pool::layers::{Checked, Limit, Spill, SpillOptions, Track};
use makeroom_pool::{Allocator, DeviceBuffer, Options, Pool, PoolStream, Site, Watcher};

const THREADS: u64 = 64;
const ROUNDS: usize = 60;

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A buffer and what its owner wrote into it.
struct Shadowed {
    buffer: DeviceBuffer<u64>,
    first: u64,
}

impl Shadowed {
    fn new(stream: &PoolStream, len: usize, first: u64) -> Result<Self, makeroom_pool::PoolError> {
        let values: Vec<u64> = (first..first + len as u64).collect();
        Ok(Self { buffer: DeviceBuffer::from_host(stream, &values)?, first })
    }

    fn verify(&self) {
        let found = self.buffer.to_host().unwrap();
        assert!(
            found.iter().copied().eq(self.first..self.first + found.len() as u64),
            "somebody else wrote here"
        );
    }
}

/// Each thread allocates, writes, verifies, frees, and passes some buffers on to the next to free.
fn hammer(pool: &Pool, allocator: &Arc<dyn Allocator>) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel::<Shadowed>()).unzip();
    let receivers: Vec<_> = receivers.into_iter().map(Mutex::new).collect();
    let (senders, receivers) = (&senders, &receivers);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                pool.make_current().unwrap();
                let stream = PoolStream::new(Arc::clone(allocator)).unwrap();
                let mut numbers = Numbers(thread);
                let mut held: Vec<Shadowed> = Vec::new();
                for round in 0..ROUNDS {
                    let scale = 1 << numbers.below(16);
                    let len = 1 + numbers.below(scale) as usize;
                    let first = thread << 40 | (round as u64) << 20;
                    match Shadowed::new(&stream, len, first) {
                        Ok(shadowed) => held.push(shadowed),
                        Err(error) => assert!(error.is_out_of_memory(), "{error}"),
                    }
                    if held.len() > 6 || numbers.below(3) == 0 && !held.is_empty() {
                        let chosen = held.swap_remove(numbers.below(held.len() as u64) as usize);
                        chosen.verify();
                        if numbers.below(4) == 0 {
                            let next = (thread + 1) % THREADS;
                            senders[next as usize].send(chosen).unwrap();
                        }
                    }
                    while let Ok(passed) = receivers[thread as usize].lock().unwrap().try_recv() {
                        passed.verify();
                    }
                }
                held.iter().for_each(Shadowed::verify);
            });
        }
    });
    for receiver in receivers {
        receiver.lock().unwrap().try_iter().for_each(drop);
    }
}

/// With sites, as in debug builds, and without, where threads keep blocks for themselves.
#[test]
fn threads_never_share_memory() {
    let gpu = common::gpu("threads");
    for keeps_sites in [true, false] {
        let before = gpu.driver.memory().unwrap().free;
        let pool = Pool::new(gpu.driver, 0, Options { keeps_sites, ..Options::default() }).unwrap();
        let allocator: Arc<dyn Allocator> = Arc::new(pool.clone());
        hammer(&pool, &allocator);
        check_account(&pool);
        assert_eq!(pool.stats().live, 0);
        drop((allocator, pool));
        assert_eq!(gpu.driver.memory().unwrap().free, before);
    }
}

/// The books are exact at every moment at which nobody is in the middle of a call.
#[test]
fn figures_are_exact_whatever_threads_keep() {
    const EACH: u64 = 24;
    let gpu = common::gpu("threads");
    let pool = Pool::new(gpu.driver, 0, Options { keeps_sites: false, ..Options::default() }).unwrap();
    let rest = Barrier::new(9);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (pool, rest) = (&pool, &rest);
            scope.spawn(move || {
                let (stream, here) = (pool.stream().unwrap(), makeroom_pool::Site::here());
                let mut numbers = Numbers(thread);
                let mut held = std::collections::VecDeque::new();
                for _ in 0..10 {
                    for _ in 0..2000 {
                        let bytes = 1 + numbers.below(3000);
                        held.push_back((pool.allocate(bytes, stream.id(), here).unwrap(), bytes));
                        if held.len() > EACH as usize {
                            let (address, _) = held.pop_front().unwrap();
                            // SAFETY: nothing uses it.
                            unsafe { pool.free(address, stream.id(), here) }.unwrap();
                        }
                    }
                    rest.wait();
                    for (address, bytes) in &held {
                        assert_eq!(pool.requested_at(*address), Some(*bytes));
                    }
                    rest.wait();
                }
                for (address, _) in held {
                    // SAFETY: nothing uses it.
                    unsafe { pool.free(address, stream.id(), here) }.unwrap();
                    // SAFETY: it is refused.
                    assert!(unsafe { pool.free(address, stream.id(), here) }.is_err(), "a second free");
                }
            });
        }
        for _ in 0..10 {
            rest.wait();
            check_account(&pool);
            assert_eq!(pool.stats().blocks, 8 * EACH);
            rest.wait();
        }
    });
    check_account(&pool);
    assert_eq!(pool.stats().live, 0);
}

/// Holds the pool's lock where it is told to, for as long as others need to find it taken.
#[derive(Debug)]
struct Gate {
    is_closed: AtomicBool,
    is_met: Barrier,
}

impl Watcher for Gate {
    fn may_take(&self, _bytes: u64) -> bool {
        if self.is_closed.swap(false, Ordering::Relaxed) {
            self.is_met.wait();
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

/// A block that this thread got while it found the pool's lock taken: its size is rounded for the thread's cache.
fn known_block(pool: &Pool, gate: &Gate, stream: &PoolStream) -> Address {
    const BYTES: u64 = 33_000;
    let here = Site::here();
    for _ in 0..50 {
        gate.is_closed.store(true, Ordering::Relaxed);
        let address = std::thread::scope(|scope| {
            // More than is there, so that the pool asks whether it may take it.
            scope.spawn(|| pool.allocate(pool.stats().cached + (8 << 20), stream.id(), here).unwrap());
            gate.is_met.wait();
            // Found taken, and had when the other thread is done; another one, when the first was too late for that.
            pool.allocate(BYTES, stream.id(), here).unwrap()
        });
        let blocks = pool.snapshot().segments.into_iter().flat_map(|segment| segment.blocks);
        if blocks.into_iter().any(|block| block.address == address && block.size > BYTES + 512) {
            return address;
        }
    }
    panic!("the two threads never met");
}

#[test]
fn a_block_of_a_cache_can_be_used_by_another_stream_and_freed_once() {
    let gpu = common::gpu("threads");
    let gate = Arc::new(Gate { is_closed: AtomicBool::new(false), is_met: Barrier::new(2) });
    let options = Options { keeps_sites: false, watcher: Some(gate.clone()), ..Options::default() };
    let pool = Pool::new(gpu.driver, 0, options).unwrap();
    let (own, other, here) = (pool.stream().unwrap(), pool.stream().unwrap(), Site::here());
    let shared = known_block(&pool, &gate, &own);
    let live = pool.stats().live;
    pool.record_stream(shared, other.id()).unwrap();
    assert_eq!(pool.stats().live, live, "what was asked for, not what the block holds");
    gpu.keep_busy(other.id().0, 1000);
    // SAFETY: the stream that uses it was named.
    unsafe { pool.free(shared, own.id(), here) }.unwrap();
    assert_eq!(pool.stats().pending, 33_000, "it waits for the other stream");
    let kept = pool.allocate(33_000, own.id(), here).unwrap();
    assert_ne!(kept, shared);
    // SAFETY: nothing uses it.
    unsafe { pool.free(kept, own.id(), here) }.unwrap();
    assert!(pool.record_stream(kept, other.id()).is_err(), "it is free");
    for address in [shared, kept] {
        // SAFETY: it is refused.
        assert!(unsafe { pool.free(address, own.id(), here) }.is_err(), "a second free");
    }
    gpu.advance(2000);
    check_account(&pool);
}

#[test]
fn threads_never_share_memory_when_it_is_short_and_spilled_and_checked() {
    let gpu = common::gpu("threads");
    let before = gpu.driver.memory().unwrap().free;
    let pool = Pool::new(
        gpu.driver,
        0,
        Options { limit: Some(Bytes::mib(10)), keeps_sites: false, ..Options::default() },
    )
    .unwrap();
    let options = SpillOptions { quota: Bytes::mib(40), smallest: Bytes::kib(64) };
    let spill = Spill::new(pool.clone(), 0, options).unwrap();
    let checked = Checked::new(spill, Bytes::mib(2), |violation| panic!("{violation}"));
    let track = Arc::new(Track::new(Limit::new(checked, Bytes::mib(70))));
    let allocator: Arc<dyn Allocator> = Arc::clone(&track) as _;
    hammer(&pool, &allocator);
    allocator.trim(0);
    check_account(&pool);
    assert_eq!(track.report().live, Bytes::ZERO);
    assert_eq!(track.upstream().passed(), Bytes::ZERO);
    let spill = track.upstream().upstream().upstream();
    assert_eq!((spill.spilled().now, spill.host().stats().live), (Bytes::ZERO, 0));
    assert!(spill.spilled().blocks > 0);
    drop((allocator, track, pool));
    assert_eq!(gpu.driver.memory().unwrap().free, before);
}
