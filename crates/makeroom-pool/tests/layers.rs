//! Each layer alone, and all of them stacked, on the software GPU.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::{Arc, Mutex, MutexGuard};

use makeroom_core::{Address, Bytes};
use makeroom_pool::layers::{Answer, Checked, Limit, OnFailure, Spill, SpillOptions, Track};
use makeroom_pool::{Allocator, DeviceBuffer, Options, Pool, PoolError, PoolStream, Site};

const MIB: usize = 1 << 20;

fn pool(limit: Option<Bytes>) -> (MutexGuard<'static, common::Gpu>, Pool) {
    let gpu = common::gpu("layers");
    let pool = Pool::new(gpu.driver, 0, Options { limit, ..Options::default() }).unwrap();
    (gpu, pool)
}

/// A stream over a layer, and the layer.
fn over<A: Allocator + 'static>(layer: A) -> (PoolStream, Arc<A>) {
    let layer = Arc::new(layer);
    (PoolStream::new(Arc::clone(&layer) as Arc<dyn Allocator>).unwrap(), layer)
}

fn bytes(stream: &PoolStream, count: usize) -> Result<DeviceBuffer<u8>, PoolError> {
    DeviceBuffer::uninitialized(stream, count)
}

#[test]
fn a_limit_counts_what_passes_and_refuses_the_rest() {
    let (_gpu, pool) = pool(None);
    let (stream, limit) = over(Limit::new(pool.clone(), Bytes::mib(10)));
    let held = bytes(&stream, 8 * MIB).unwrap();
    let PoolError::OutOfMemory(error) = bytes(&stream, 3 * MIB).unwrap_err() else { panic!() };
    assert_eq!((error.pool.requested, error.pool.largest), (3 << 20, 2 << 20));
    assert_eq!(error.pool.limit, Some(10 << 20));
    assert_eq!(limit.passed(), Bytes::mib(8), "a refusal does not count");
    let exact = bytes(&stream, 2 * MIB).unwrap();
    limit.set_limit(Bytes::mib(1));
    assert!(bytes(&stream, 1).is_err());
    drop((held, exact));
    assert_eq!(limit.passed(), Bytes::ZERO);
    // A request that fails in the pool does not count either.
    limit.set_limit(Bytes::gib(100));
    assert!(bytes(&stream, 2048 * MIB).unwrap_err().is_out_of_memory());
    assert_eq!(limit.passed(), Bytes::ZERO);
    // Two users of one pool, each with its own limit.
    let (other, _) = over(Limit::new(pool, Bytes::mib(1)));
    limit.set_limit(Bytes::mib(10));
    let _held = bytes(&stream, 10 * MIB).unwrap();
    assert!(bytes(&other, MIB).is_ok());
}

#[test]
fn tracking_names_the_sites_of_the_peak_and_of_leaks() {
    let (_gpu, pool) = pool(None);
    let (stream, track) = over(Track::new(pool));
    let ask = |count| bytes(&stream, count).unwrap();
    let kept = ask(5 * MIB);
    for _ in 0..3 {
        let brief = DeviceBuffer::<u8>::uninitialized(&stream, 20 * MIB).unwrap();
        drop(brief);
    }
    let late = DeviceBuffer::<u8>::uninitialized(&stream, 7 * MIB).unwrap();
    let report = track.report();
    assert_eq!((report.live, report.peak), (Bytes::mib(12), Bytes::mib(25)));
    assert_eq!(report.sites.iter().map(|site| site.at_peak).sum::<Bytes>(), report.peak);
    assert_eq!(report.sites.iter().map(|site| site.live).sum::<Bytes>(), report.live);
    let figures: Vec<_> =
        report.sites.iter().map(|site| (site.at_peak, site.live, site.allocations)).collect();
    let mib = Bytes::mib;
    assert_eq!(figures, [(mib(20), mib(0), 3), (mib(5), mib(5), 1), (mib(0), mib(7), 1)]);
    let text = report.to_string();
    assert!(text.contains("12.00 MiB live, 25.00 MiB at the peak"), "{text}");
    assert!(text.contains("tests/layers.rs:"), "{text}");
    drop(kept);
    let leaks = track.leaks();
    assert_eq!((leaks.len(), leaks[0].live, leaks[0].blocks), (1, mib(7), 1));
    drop(late);
    assert!(track.leaks().is_empty());
}

#[test]
fn what_does_not_fit_is_spilled_and_works_like_the_rest() {
    let (gpu, pool) = pool(Some(Bytes::mib(64)));
    let before = gpu.driver.memory().unwrap().free;
    let (stream, spill) =
        over(Spill::new(pool.clone(), 0, SpillOptions::with_quota(Bytes::mib(48))).unwrap());
    let device = bytes(&stream, 40 * MIB).unwrap();
    assert!(!spill.is_spilled(device.address()));
    let values: Vec<u8> = (0..32 * MIB).map(|at| (at % 251) as u8).collect();
    let spilled = DeviceBuffer::from_host(&stream, &values).unwrap();
    assert!(spill.is_spilled(spilled.address()));
    assert!(spilled.to_host().unwrap() == values);
    spilled.record_stream(&stream).unwrap();
    assert!(spill.reaches(spilled.address()) && spill.reaches(device.address()));
    let report = spill.spilled();
    assert_eq!((report.now, report.peak, report.blocks), (Bytes::mib(32), Bytes::mib(32), 1));
    assert_eq!((report.by_size.len(), report.by_size[0].from), (1, Bytes::mib(32)));
    // The device's account does not include it.
    assert_eq!(spill.stats().live, 40 << 20);
    assert_eq!(before.get() - gpu.driver.memory().unwrap().free.get(), spill.stats().reserved);
    // Beyond the quota, the device's own error is returned, with the spilled memory.
    let error = bytes(&stream, 40 * MIB).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("spilled to host memory: 32.00 MiB of 48.00 MiB"), "{text}");
    assert!(error.hint().unwrap().contains("quota"));
    assert_eq!(spill.spilled().refused, 1);
    drop((spilled, device));
    let report = spill.spilled();
    assert_eq!((report.now, report.peak, report.blocks), (Bytes::ZERO, Bytes::mib(32), 1));
    assert!(report.to_string().contains("32.00 MiB at the peak, quota 48.00 MiB"), "{report}");
    assert_eq!(spill.host().stats().live, 0);
}

#[test]
fn small_blocks_are_spilled_only_instead_of_failing() {
    let (_gpu, pool) = pool(Some(Bytes::mib(8)));
    let (stream, spill) = over(Spill::new(pool, 0, SpillOptions::with_quota(Bytes::mib(48))).unwrap());
    let _full = bytes(&stream, 8 * MIB).unwrap();
    let small = bytes(&stream, 1000).unwrap();
    assert!(spill.is_spilled(small.address()));
    assert_eq!(spill.spilled().small, 1);
    assert!(spill.spilled().to_string().contains("1 of them were small"));
}

#[test]
fn a_second_free_of_spilled_memory_is_caught() {
    let (_gpu, pool) = pool(Some(Bytes::mib(8)));
    let spill = Spill::new(pool.clone(), 0, SpillOptions::with_quota(Bytes::mib(48))).unwrap();
    let (stream, _) = over(pool);
    let address = spill.allocate(32 << 20, stream.id(), Site::here()).unwrap();
    assert!(spill.is_spilled(address));
    // SAFETY: nothing uses it.
    unsafe { spill.free(address, stream.id(), Site::here()) }.unwrap();
    // SAFETY: the free fails.
    let error = unsafe { spill.free(address, stream.id(), Site::here()) }.unwrap_err();
    let PoolError::WrongAddress(error) = error else { panic!("{error}") };
    let (allocated, freed) = error.before.expect("debug builds keep sites");
    assert!(allocated.to_string().contains("layers.rs") && freed.to_string().contains("layers.rs"));
    assert_eq!(spill.spilled().now, Bytes::ZERO);
}

/// A loop that does not fit: long-lived blocks stop pushing short-lived ones off the device.
#[test]
fn brief_blocks_get_their_room_back() {
    let (_gpu, pool) = pool(Some(Bytes::mib(256)));
    let (stream, spill) = over(Spill::new(pool, 0, SpillOptions::with_quota(Bytes::gib(1))).unwrap());
    let brief = || DeviceBuffer::<u8>::uninitialized(&stream, 16 * MIB).unwrap();
    let long = || DeviceBuffer::<u8>::uninitialized(&stream, 4 * MIB).unwrap();
    let step = || {
        let mut kept = Vec::new();
        let mut spilled = 0;
        for _ in 0..80 {
            kept.push(long());
            spilled += usize::from(spill.is_spilled(brief().address()));
        }
        spilled
    };
    let first = step();
    assert!(first > 0, "the device was full");
    for _ in 0..2 {
        step();
    }
    assert_eq!(step(), 0, "brief blocks have their room on the device");
    assert!(spill.spilled().made_way > 0);
}

#[test]
fn without_mapped_host_memory_pinned_memory_is_used() {
    let gpu = common::gpu("layers");
    let driver = gpu.without_host_nodes();
    let pool = Pool::new(driver, 0, Options { limit: Some(Bytes::mib(8)), ..Options::default() }).unwrap();
    let (stream, spill) = over(Spill::new(pool, 0, SpillOptions::with_quota(Bytes::mib(64))).unwrap());
    let values: Vec<u32> = (0..4_000_000).collect();
    let spilled = DeviceBuffer::from_host(&stream, &values).unwrap();
    assert!(spill.is_spilled(spilled.address()));
    assert!(spilled.to_host().unwrap() == values);
    let first = spilled.address();
    drop(spilled);
    // Reused at once on its own stream, on another once the GPU has passed.
    gpu.keep_busy(stream.id().0, 1000);
    let again = DeviceBuffer::<u32>::uninitialized(&stream, 4_000_000).unwrap();
    assert_eq!(again.address(), first);
    drop(again);
    let other = PoolStream::new(Arc::clone(&spill) as Arc<dyn Allocator>).unwrap();
    let elsewhere = DeviceBuffer::<u32>::uninitialized(&other, 4_000_000).unwrap();
    assert_ne!(elsewhere.address(), first);
    gpu.advance(2000);
    let passed = DeviceBuffer::<u32>::uninitialized(&other, 4_000_000).unwrap();
    assert_eq!(passed.address(), first);
    let stats = spill.host().stats();
    assert_eq!(stats.reserved, stats.live + stats.rounding + stats.cached);
    drop((passed, elsewhere));
    assert!(DeviceBuffer::<u8>::uninitialized(&stream, 63 * MIB).is_ok(), "unused blocks make way");
    assert!(DeviceBuffer::<u8>::uninitialized(&stream, 65 * MIB).is_err(), "the quota holds");
    spill.trim(0);
    assert_eq!(spill.host().stats().reserved, 0);
}

#[test]
fn a_function_is_asked_before_a_request_fails() {
    let (_gpu, pool) = pool(Some(Bytes::mib(32)));
    let cache = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (drops, notes) = (Arc::clone(&cache), Arc::clone(&asked));
    let (stream, _) = over(OnFailure::new(pool, move |failure| {
        notes.lock().unwrap().push((failure.bytes, failure.attempt, failure.error.pool.stats.live));
        let freed: Option<DeviceBuffer<u8>> = drops.lock().unwrap().pop();
        if freed.is_some() { Answer::TryAgain } else { Answer::GiveUp }
    }));
    for _ in 0..4 {
        let cached = bytes(&stream, 8 * MIB).unwrap();
        cache.lock().unwrap().push(cached);
    }
    let large = bytes(&stream, 16 * MIB).unwrap();
    assert_eq!(cache.lock().unwrap().len(), 2);
    assert!(bytes(&stream, 64 * MIB).unwrap_err().is_out_of_memory());
    assert!(cache.lock().unwrap().is_empty());
    let (mib, asked) = (Bytes::mib, asked.lock().unwrap());
    let expected = [
        (mib(16), 0, 32 << 20),
        (mib(16), 1, 24 << 20),
        (mib(64), 0, 32 << 20),
        (mib(64), 1, 24 << 20),
        (mib(64), 2, 16 << 20),
    ];
    assert_eq!(*asked, expected);
    drop(large);
}

type Heard = Arc<Mutex<Vec<String>>>;

/// A checking layer, and the violations that it reported.
fn checked(pool: Pool, quarantine: Bytes) -> (PoolStream, Arc<Checked<Pool>>, Heard) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let said = Arc::clone(&heard);
    let hear = move |violation: &_| said.lock().unwrap().push(format!("{violation}"));
    let (stream, layer) = over(Checked::new(pool, quarantine, hear));
    (stream, layer, heard)
}

#[test]
fn a_write_after_the_free_is_found_with_both_sites() {
    let (gpu, pool) = pool(None);
    let (stream, layer, heard) = checked(pool, Bytes::mib(8));
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 3 * MIB).unwrap();
    let dangling = buffer.address();
    drop(buffer);
    // SAFETY: the memory is freed, which is the test, but still mapped.
    let gone = unsafe { makeroom_cuda::Region::from_address(gpu.driver, dangling, Bytes::mib(3)) };
    gone.part(Bytes::new(2_500_000), Bytes::new(4)).unwrap().write(&[1, 2, 3, 4]).unwrap();
    assert!(heard.lock().unwrap().is_empty(), "it is found when the block leaves the quarantine");
    for _ in 0..3 {
        drop(bytes(&stream, 3 * MIB).unwrap());
    }
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(heard[0].contains("2500000 bytes from its start"), "{heard:?}");
    assert_eq!(heard[0].matches("tests/layers.rs:").count(), 2, "{heard:?}");
    drop(layer);
}

#[test]
fn second_frees_and_foreign_addresses_are_found_with_both_sites() {
    let (_gpu, pool) = pool(None);
    let (stream, layer, heard) = checked(pool, Bytes::mib(8));
    let address = layer.allocate(1000, stream.id(), Site::here()).unwrap();
    // SAFETY: nothing uses it.
    unsafe { layer.free(address, stream.id(), Site::here()) }.unwrap();
    for wrong in [address, Address(address.0 + 512), Address(4096)] {
        // SAFETY: the free fails.
        let error = unsafe { layer.free(wrong, stream.id(), Site::here()) }.unwrap_err();
        assert!(matches!(error, PoolError::WrongAddress(_)), "{error}");
    }
    let heard = heard.lock().unwrap();
    assert_eq!(heard[0].matches("tests/layers.rs:").count(), 3, "{heard:?}");
    assert!(heard[1].contains("no live block starts at"), "{heard:?}");
    assert!(heard[2].contains("was not allocated from this pool"), "{heard:?}");
}

#[test]
fn a_quarantine_gives_way_and_is_quiet_about_correct_programs() {
    let (gpu, pool) = pool(Some(Bytes::mib(64)));
    let before = gpu.driver.memory().unwrap().free;
    let (stream, layer, heard) = checked(pool.clone(), Bytes::mib(64));
    let other = PoolStream::new(Arc::clone(&layer) as Arc<dyn Allocator>).unwrap();
    for round in 0..50 {
        let stream = if round % 3 == 0 { &other } else { &stream };
        let shared = DeviceBuffer::<u8>::zeroed(stream, (round + 1) * MIB / 2).unwrap();
        shared.record_stream(&other).unwrap();
        gpu.keep_busy(other.id().0, 500);
    }
    // The quarantine holds most of the device; a request that needs it gets it.
    let all = bytes(&stream, 64 * MIB).unwrap();
    drop(all);
    drop((stream, other));
    assert_eq!(pool.stats().live, 0, "streams that end leave nothing in quarantine");
    drop((layer, pool));
    assert_eq!(gpu.driver.memory().unwrap().free, before);
    assert!(heard.lock().unwrap().is_empty());
}

#[test]
fn stacked_layers_do_what_each_does_alone() {
    let (gpu, pool) = pool(Some(Bytes::mib(64)));
    let before = gpu.driver.memory().unwrap().free;
    let spill = Spill::new(pool, 0, SpillOptions::with_quota(Bytes::mib(64))).unwrap();
    let limit = Limit::new(spill, Bytes::mib(100));
    let checked = Checked::new(limit, Bytes::mib(8), |violation| panic!("{violation}"));
    let (stream, top) = over(Track::new(OnFailure::new(checked, |_| Answer::GiveUp)));
    let held: Vec<_> = (0..6).map(|_| bytes(&stream, 16 * MIB).unwrap()).collect();
    assert!(bytes(&stream, 16 * MIB).is_err());
    let limit = top.upstream().upstream().upstream();
    let spilled = limit.upstream().spilled();
    assert_eq!((spilled.now, spilled.blocks, spilled.refused), (Bytes::mib(32), 2, 0));
    assert_eq!(top.report().live, Bytes::mib(96));
    drop(held);
    assert_eq!(top.report().live, Bytes::ZERO);
    top.trim(0);
    assert_eq!(top.upstream().upstream().upstream().passed(), Bytes::ZERO);
    drop((stream, top));
    assert_eq!(gpu.driver.memory().unwrap().free, before);
}
