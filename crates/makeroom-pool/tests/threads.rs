//! Many threads at once: memory is never shared, and the account is right afterwards.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::{Arc, Barrier, Mutex, mpsc};

use common::aside::{Gate, block_of_a_side};
use common::check_account;
use makeroom_core::{Address, Bytes};
use makeroom_pool::layers::{Checked, Limit, Spill, SpillOptions, Track};
use makeroom_pool::{Allocator, DeviceBuffer, Options, Pool, PoolStream, Site};

const THREADS: u64 = 64;
const ROUNDS: usize = 60;

/// Deterministic pseudorandom numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A buffer and the values that its owner wrote.
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

/// With sites, as in debug builds, and without, where threads use arenas.
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

/// The account is exact whenever no call is in progress.
#[test]
fn figures_are_exact_wherever_blocks_lie() {
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
                    // SAFETY: the free fails.
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

#[test]
fn a_block_of_a_side_can_be_used_by_another_stream_and_freed_once() {
    const BYTES: u64 = 33_000;
    let gpu = common::gpu("threads");
    let gate = Gate::new();
    let options = Options { keeps_sites: false, watcher: Some(gate.clone()), ..Options::default() };
    let pool = Pool::new(gpu.driver, 0, options).unwrap();
    let (own, other, here) = (pool.stream().unwrap(), pool.stream().unwrap(), Site::here());
    let shared = block_of_a_side(&pool, &gate, &own, BYTES);
    assert!(pool.reaches(shared));
    assert_eq!(pool.requested_at(shared), Some(BYTES));
    let live = pool.stats().live;
    pool.record_stream(shared, other.id()).unwrap();
    gpu.keep_busy(other.id().0, 1000);
    // SAFETY: the stream that uses it was recorded.
    unsafe { pool.free(shared, own.id(), here) }.unwrap();
    assert_eq!((pool.stats().live, pool.stats().pending), (live, BYTES), "it waits for the other stream");
    let second = pool.allocate(BYTES, own.id(), here).unwrap();
    assert_ne!(second, shared);
    // SAFETY: nothing uses it.
    unsafe { pool.free(second, own.id(), here) }.unwrap();
    assert!(pool.record_stream(second, other.id()).is_err(), "it is free");
    for address in [shared, second] {
        // SAFETY: the free fails.
        assert!(unsafe { pool.free(address, own.id(), here) }.is_err(), "a second free");
    }
    // SAFETY: the free fails.
    assert!(unsafe { pool.free(Address(second.0 + (8 << 30)), own.id(), here) }.is_err(), "an empty side");
    gpu.advance(2000);
    pool.collect();
    assert_eq!(pool.stats().pending, 0);
    check_account(&pool);
}

/// Free memory that shares a page with a live block of an arena cannot be released, and is handed out as the last
/// resort.
#[test]
fn small_blocks_lie_in_any_side_before_they_are_refused() {
    const MIB: u64 = 1 << 20;
    let gpu = common::gpu("threads");
    let gate = Gate::new();
    let limit = Some(Bytes::mib(600));
    let options = Options { keeps_sites: false, watcher: Some(gate.clone()), limit, ..Options::default() };
    let pool = Pool::new(gpu.driver, 0, options).unwrap();
    let (own, here) = (pool.stream().unwrap(), Site::here());
    let in_side = block_of_a_side(&pool, &gate, &own, 4096);
    // A thread without an arena takes all the rest.
    let found = std::thread::scope(|scope| {
        let small = || {
            for bytes in [64 * MIB, 2 * MIB, MIB + 512] {
                while pool.allocate(bytes, own.id(), here).is_ok() {}
            }
            (0..).map_while(|_| pool.allocate(MIB / 2, own.id(), here).ok()).last()
        };
        scope.spawn(small).join().unwrap()
    });
    let found = found.expect("the page of the side's block has room");
    assert_eq!(gate.range_of(found), gate.range_of(in_side));
    check_account(&pool);
}

/// Memory cached in an arena neither makes a request fail nor counts twice against the limit.
#[test]
fn a_side_keeps_to_the_limit_and_gives_way() {
    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 900 * MIB;
    let gpu = common::gpu("threads");
    let before = gpu.driver.memory().unwrap().free;
    let gate = Gate::new();
    let options = Options {
        keeps_sites: false,
        watcher: Some(gate.clone()),
        limit: Some(Bytes::new(LIMIT)),
        ..Options::default()
    };
    let pool = Pool::new(gpu.driver, 0, options).unwrap();
    let (own, here) = (pool.stream().unwrap(), Site::here());
    let first = block_of_a_side(&pool, &gate, &own, 4096);
    let taken = before.get() - gpu.driver.memory().unwrap().free.get();
    assert_eq!(pool.stats().reserved, taken, "sides are counted");
    let mut small = vec![first];
    let full = loop {
        match pool.allocate(MIB, own.id(), here) {
            Ok(address) => small.push(address),
            Err(error) => break error,
        }
    };
    assert!(full.is_out_of_memory());
    let stats = pool.stats();
    assert!(stats.reserved <= LIMIT && stats.reserved > LIMIT - 8 * MIB, "{stats:?}");
    assert_eq!(stats.done.refusals, 1);
    check_account(&pool);
    for address in small {
        // SAFETY: nothing uses it.
        unsafe { pool.free(address, own.id(), here) }.unwrap();
    }
    let large = pool.stats().cached - 16 * MIB;
    let address = pool.allocate(large, own.id(), here).expect("the side gives way");
    assert!(pool.stats().reserved <= LIMIT);
    assert!(pool.stats().peak_reserved <= LIMIT);
    check_account(&pool);
    // SAFETY: nothing uses it.
    unsafe { pool.free(address, own.id(), here) }.unwrap();
    // SAFETY: none of it is used again.
    unsafe { pool.abandon() }.unwrap();
    assert_eq!(gpu.driver.memory().unwrap().free, before);
    assert_eq!(pool.stats().reserved, 0);
    assert!(pool.allocate(4096, own.id(), here).is_ok(), "it begins anew");
    check_account(&pool);
}

/// Memory that moves back and forth between arenas costs more than it saves; memory that stays forever is missing
/// elsewhere.
#[test]
fn a_side_keeps_what_it_used_of_late_and_no_more() {
    const MIB: u64 = 1 << 20;
    let gpu = common::gpu("threads");
    let gate = Gate::new();
    let options = Options { keeps_sites: false, watcher: Some(gate.clone()), ..Options::default() };
    let pool = Pool::new(gpu.driver, 0, options).unwrap();
    let (own, here) = (pool.stream().unwrap(), Site::here());
    let free = |address| {
        // SAFETY: nothing uses it.
        unsafe { pool.free(address, own.id(), here) }.unwrap();
    };
    // More than is cached anywhere, so that the pool has to grow.
    let grow = || pool.allocate(pool.stats().cached + 8 * MIB, own.id(), here).unwrap();
    block_of_a_side(&pool, &gate, &own, 4096);
    // One step of the thread, and whether it needed new memory.
    let step = || {
        let before = pool.stats().done.created;
        let blocks: Vec<Address> = (0..40).map(|_| pool.allocate(MIB, own.id(), here).unwrap()).collect();
        blocks.into_iter().for_each(free);
        pool.stats().done.created > before
    };
    assert!(step());
    for _ in 0..5 {
        grow();
        assert!(!step(), "what it uses in every step stays");
    }
    let released = pool.stats().done.released;
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(110));
        grow();
    }
    assert!(pool.stats().done.released >= released + 12, "what it has not used for a while goes back");
    assert!(step(), "and is taken again");
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
