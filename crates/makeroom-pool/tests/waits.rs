//! Streams that are stuck, because they wait for the allocating thread: waits for them time out, and requests of
//! other streams do not wait at all. On the software GPU every driver call that waits advances the clock.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::{Duration, Instant};

use makeroom_pool::{Allocator as _, DeviceBuffer, Options, Pool};

/// A time that no polling reaches.
const FOR_EVER: u64 = 1 << 60;
/// More than many polls advance the clock.
const LITTLE: u64 = 1_000_000_000;
const SHORT: Duration = Duration::from_millis(50);

fn pool() -> (std::sync::MutexGuard<'static, common::Gpu>, Pool) {
    let gpu = common::gpu("waits");
    let pool = Pool::new(gpu.driver, 0, Options { longest_wait: SHORT, ..Options::default() }).unwrap();
    pool.make_current().unwrap();
    (gpu, pool)
}

fn buffer(stream: &makeroom_pool::PoolStream, mebibytes: usize) -> makeroom_pool::Result<DeviceBuffer<u8>> {
    DeviceBuffer::uninitialized(stream, mebibytes << 20)
}

#[test]
fn a_stream_that_waits_for_this_thread_is_not_waited_for_while_there_is_memory() {
    let (gpu, pool) = pool();
    let (stuck, own) = (pool.stream().unwrap(), pool.stream().unwrap());
    let freed = buffer(&stuck, 300).unwrap();
    gpu.keep_busy(stuck.id().0, FOR_EVER);
    drop(freed);
    let start = gpu.now();
    let (first, _second) = (buffer(&own, 150).unwrap(), buffer(&own, 150).unwrap());
    assert!(gpu.now() - start < LITTLE, "the other stream was waited for");
    assert_eq!(pool.stats().reserved, 600 << 20);
    // Its own stream is stuck too: new memory, after a short wait.
    gpu.keep_busy(own.id().0, FOR_EVER);
    drop(first);
    let begun = Instant::now();
    let _larger = buffer(&own, 200).unwrap();
    assert!(gpu.now() - start < LITTLE, "its own stream was waited for");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(pool.stats().reserved, 800 << 20);
    gpu.advance(FOR_EVER);
}

#[test]
fn a_full_card_answers_after_a_while_and_not_never() {
    let (gpu, pool) = pool();
    let (stuck, own) = (pool.stream().unwrap(), pool.stream().unwrap());
    let freed = buffer(&stuck, 800).unwrap();
    gpu.keep_busy(stuck.id().0, FOR_EVER);
    drop(freed);
    let (start, begun) = (gpu.now(), Instant::now());
    assert!(buffer(&own, 800).unwrap_err().is_out_of_memory());
    assert!(begun.elapsed() >= SHORT && begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(gpu.now() - start < LITTLE);
    assert_eq!(pool.stats().reserved, 800 << 20, "what was made for the refused request went back");
    let begun = Instant::now();
    assert_eq!(pool.trim(0), 0);
    drop(stuck);
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(gpu.now() - start < LITTLE);
    // Once the GPU has made progress the memory is available, although its stream is gone.
    gpu.advance(FOR_EVER);
    let _at_last = buffer(&own, 800).unwrap();
    assert_eq!(pool.stats().reserved, 800 << 20);
}

#[test]
fn a_refused_request_leaves_the_card_as_it_was() {
    let (gpu, pool) = pool();
    let stream = pool.stream().unwrap();
    let _held = buffer(&stream, 64).unwrap();
    let free = gpu.driver.memory().unwrap().free;
    assert!(buffer(&stream, 2000).unwrap_err().is_out_of_memory());
    assert_eq!(gpu.driver.memory().unwrap().free, free);
    assert_eq!(pool.stats().peak_reserved, 64 << 20);
}

#[test]
fn a_device_that_cannot_reach_the_memory_is_refused_and_nothing_else() {
    let (gpu, pool) = pool();
    gpu.fail_nth("cuDeviceCanAccessPeer", 1, 217);
    let error = pool.grant(1).unwrap_err();
    assert!(error.to_string().contains("cuDeviceCanAccessPeer"), "{error}");
    // Later mappings do not include the rejected device.
    gpu.fail_nth("cuDeviceCanAccessPeer", 1, 217);
    let stream = pool.stream().unwrap();
    let _memory = buffer(&stream, 64).unwrap();
    assert_eq!(gpu.forget_faults(), 1);
    pool.grant(1).unwrap();
}
