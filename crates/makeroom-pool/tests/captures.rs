//! A program that captures graphs: memory freed by captured streams stays in place, and other requests are served.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use makeroom_cuda::CaptureMode;
use makeroom_pool::{Allocator as _, DeviceBuffer, Options, Pool, Watcher};

#[test]
fn memory_of_a_captured_stream_stays_and_others_are_served() {
    let gpu = common::gpu("captures");
    let pool = Pool::new(gpu.driver, 0, Options::default()).unwrap();
    pool.make_current().unwrap();
    let (captured, other) = (pool.stream().unwrap(), pool.stream().unwrap());
    drop(DeviceBuffer::<u8>::uninitialized(&captured, 10 << 20).unwrap());
    captured.stream().begin_capture(CaptureMode::Global).unwrap();
    assert!(pool.is_capturing(captured.id()) && !pool.is_capturing(other.id()));
    let large = DeviceBuffer::<u8>::uninitialized(&other, 8 << 20).unwrap();
    let small = DeviceBuffer::<u8>::uninitialized(&other, 100).unwrap();
    let inside = DeviceBuffer::<u8>::uninitialized(&captured, 10 << 20).unwrap();
    captured.stream().discard_capture().unwrap();
    drop((large, small, inside));
    assert_eq!(pool.stats().live, 0);
}

#[derive(Debug)]
struct Keeper(AtomicBool);

impl Watcher for Keeper {
    fn may_unmap(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_watcher_keeps_memory_where_it_is() {
    let gpu = common::gpu("captures");
    let keeper = Arc::new(Keeper(AtomicBool::new(true)));
    let options = Options { watcher: Some(keeper.clone()), ..Options::default() };
    let pool = Pool::new(gpu.driver, 0, options).unwrap();
    pool.make_current().unwrap();
    let stream = pool.stream().unwrap();
    let kept = DeviceBuffer::<u8>::from_host(&stream, &vec![7; 4 << 20]).unwrap();
    let between = DeviceBuffer::<u8>::uninitialized(&stream, 4 << 20).unwrap();
    let place = kept.address();
    drop(kept);
    assert_eq!(pool.trim(0), 0);
    // Without the watcher the free pages would have been moved here.
    let large = DeviceBuffer::<u8>::zeroed(&stream, 8 << 20).unwrap();
    assert_eq!(pool.stats().reserved, 16 << 20);
    let again = DeviceBuffer::<u8>::uninitialized(&stream, 4 << 20).unwrap();
    assert_eq!(again.address(), place);
    assert_eq!(again.to_host().unwrap(), vec![7; 4 << 20]);
    drop((between, large, again));
    keeper.0.store(false, Ordering::Relaxed);
    pool.trim(0);
    assert_eq!(pool.stats().reserved, 0);
}
