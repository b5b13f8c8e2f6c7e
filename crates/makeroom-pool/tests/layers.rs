//! Each layer alone and all of them stacked, on the software GPU.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::{Arc, MutexGuard};

use makeroom_core::Bytes;
use makeroom_pool::layers::{Limit, Spill, SpillOptions, Track};
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
    // What the pool itself refuses does not count either.
    limit.set_limit(Bytes::gib(100));
    assert!(bytes(&stream, 2048 * MIB).unwrap_err().is_out_of_memory());
    assert_eq!(limit.passed(), Bytes::ZERO);
    // Two users of one pool, each with a limit of its own.
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
    // The device's account does not know of it.
    assert_eq!(spill.stats().live, 40 << 20);
    assert_eq!(before.get() - gpu.driver.memory().unwrap().free.get(), spill.stats().reserved);
    // Beyond the quota the device's own error comes, with what is spilled.
    let error = bytes(&stream, 40 * MIB).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("32.00 MiB of 48.00 MiB is spilled to host memory"), "{text}");
    assert!(error.hint().unwrap().contains("quota"));
    assert_eq!(spill.spilled().refused, 1);
    drop((spilled, device));
    let report = spill.spilled();
    assert_eq!((report.now, report.peak, report.blocks), (Bytes::ZERO, Bytes::mib(32), 1));
    assert!(report.to_string().contains("32.00 MiB at the most, of 48.00 MiB"), "{report}");
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
    // SAFETY: it is refused.
    let error = unsafe { spill.free(address, stream.id(), Site::here()) }.unwrap_err();
    let PoolError::WrongAddress(error) = error else { panic!("{error}") };
    let (allocated, freed) = error.before.expect("debug builds keep sites");
    assert!(allocated.to_string().contains("layers.rs") && freed.to_string().contains("layers.rs"));
    assert_eq!(spill.spilled().now, Bytes::ZERO);
}

/// What a loop that does not fit does: blocks that live long stop pushing brief ones off the device.
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
    // On its stream it is used again at once, on another when the GPU has passed.
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
fn stacked_layers_do_what_each_does_alone() {
    let (gpu, pool) = pool(Some(Bytes::mib(64)));
    let before = gpu.driver.memory().unwrap().free;
    let spill = Spill::new(pool, 0, SpillOptions::with_quota(Bytes::mib(64))).unwrap();
    let (stream, top) = over(Track::new(Limit::new(spill, Bytes::mib(100))));
    let held: Vec<_> = (0..6).map(|_| bytes(&stream, 16 * MIB).unwrap()).collect();
    assert!(bytes(&stream, 16 * MIB).is_err());
    let spilled = top.upstream().upstream().spilled();
    assert_eq!((spilled.now, spilled.blocks, spilled.refused), (Bytes::mib(32), 2, 0));
    assert_eq!(top.report().live, Bytes::mib(96));
    drop(held);
    assert_eq!(top.report().live, Bytes::ZERO);
    assert_eq!(top.upstream().passed(), Bytes::ZERO);
    drop((stream, top));
    assert_eq!(gpu.driver.memory().unwrap().free, before);
}
