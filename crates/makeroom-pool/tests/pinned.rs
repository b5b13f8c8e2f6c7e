//! Pinned memory on the software GPU, mapped and pinned block by block: host and device can access it, and a copy in
//! flight keeps it alive.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use makeroom_core::Bytes;
use makeroom_cuda::Driver;
use makeroom_pool::{DeviceBuffer, Options, PinnedPool, Pool};

/// With the driver as it is, and with one that cannot map host memory.
fn with_both(test: impl Fn(&common::Gpu, &'static Driver)) {
    let gpu = common::gpu("pinned");
    for driver in [gpu.driver, gpu.without_host_nodes()] {
        test(&gpu, driver);
    }
}

#[test]
fn what_the_host_writes_the_device_reads_and_back() {
    with_both(|_, driver| {
        let pool = Pool::new(driver, 0, Options::default()).unwrap();
        let stream = pool.stream().unwrap();
        let pinned = PinnedPool::new(driver, 0, None).unwrap();
        let mut there = pinned.zeroed::<u32>(1_000_000).unwrap();
        assert!(there.iter().all(|value| *value == 0));
        there.iter_mut().zip(1..).for_each(|(value, number)| *value = number);
        let mut buffer = DeviceBuffer::<u32>::uninitialized(&stream, 1_000_000).unwrap();
        let there = there.copy_to(&mut buffer.as_mut_slice()).unwrap();
        let back = pinned.uninitialized::<u32>(1_000_100).unwrap();
        let back = back.copy_from(&buffer.as_slice()).unwrap().wait().unwrap();
        assert!(back[..1_000_000].iter().copied().eq(1..=1_000_000));
        assert!(there.wait().unwrap().iter().copied().eq(1..=1_000_000));
        assert!(pinned.zeroed::<u32>(10).unwrap().copy_to(&mut buffer.as_mut_slice()).is_err(), "too short");
        drop(back);
        assert_eq!(pinned.stats().live, 0);
    });
}

#[test]
fn a_copy_that_is_under_way_keeps_its_memory() {
    with_both(|gpu, driver| {
        let pool = Pool::new(driver, 0, Options::default()).unwrap();
        let stream = pool.stream().unwrap();
        let pinned = PinnedPool::new(driver, 0, Some(Bytes::mib(6))).unwrap();
        let mut buffer = DeviceBuffer::<u8>::uninitialized(&stream, 4 << 20).unwrap();
        gpu.keep_busy(stream.id().0, 1000);
        let first = pinned.zeroed::<u8>(4 << 20).unwrap();
        let used = first.as_ptr();
        let copy = first.copy_to(&mut buffer.as_mut_slice()).unwrap();
        assert!(!copy.is_done().unwrap());
        drop(copy);
        assert_eq!(pinned.stats().live, 4 << 20, "the copy uses it");
        let small = pinned.zeroed::<u8>(1 << 20).unwrap();
        assert!(!(used..used.wrapping_add(4 << 20)).contains(&small.as_ptr()));
        // The pool is exhausted: it waits for the copy, then reuses its memory.
        let second = pinned.zeroed::<u8>(4 << 20).unwrap();
        assert_eq!(second.as_ptr(), used);
        // A stream may be destroyed before memory dropped on it is collected.
        gpu.keep_busy(stream.id().0, 1000);
        drop(second.copy_to(&mut buffer.as_mut_slice()).unwrap());
        drop((buffer, stream, small));
        gpu.advance(5000);
        drop(pinned.zeroed::<u8>(4 << 20).unwrap());
        assert_eq!(pinned.stats().live, 0);
        assert!(pinned.trim(0) > 0);
        assert_eq!(pinned.stats().reserved, 0);
    });
}
