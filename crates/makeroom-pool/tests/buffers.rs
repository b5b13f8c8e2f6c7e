//! Buffers on the software GPU: their contents, and that every path frees their memory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use makeroom_core::Bytes;
use makeroom_pool::{Allocator as _, DeviceBuffer, EVERY_STREAM, Options, Pool, PoolError, Site};

fn pool(options: Options) -> (std::sync::MutexGuard<'static, common::Gpu>, Pool) {
    let gpu = common::gpu("buffers");
    let pool = Pool::new(gpu.driver, 0, options).unwrap();
    pool.make_current().unwrap();
    (gpu, pool)
}

#[test]
fn what_is_copied_in_comes_out() {
    let (_gpu, pool) = pool(Options::default());
    let stream = pool.stream().unwrap();
    let values: Vec<u32> = (0..100_000).collect();
    let buffer = DeviceBuffer::from_host(&stream, &values).unwrap();
    assert_eq!(buffer.to_host().unwrap(), values);
    assert_eq!(buffer.as_slice().slice(10..13).unwrap().to_host().unwrap(), [10, 11, 12]);
    let mut copy = DeviceBuffer::<u32>::zeroed(&stream, values.len()).unwrap();
    assert!(copy.to_host().unwrap().iter().all(|value| *value == 0));
    copy.as_mut_slice().copy_from(&buffer.as_slice()).unwrap();
    assert_eq!(copy.to_host().unwrap(), values);
    assert_eq!(pool.stats().live, 800_000);
    drop((buffer, copy));
    assert_eq!(pool.stats().live, 0);
}

#[test]
fn an_early_return_frees() {
    fn fails(pool: &Pool) -> Result<(), PoolError> {
        let stream = pool.stream()?;
        let _kept = DeviceBuffer::<f64>::zeroed(&stream, 1 << 20)?;
        DeviceBuffer::<f64>::zeroed(&stream, 1 << 40)?;
        Ok(())
    }
    let (_gpu, pool) = pool(Options::default());
    assert!(fails(&pool).unwrap_err().is_out_of_memory());
    assert_eq!(pool.stats().live, 0);
}

#[test]
fn out_of_memory_carries_an_account_that_adds_up() {
    let (_gpu, pool) = pool(Options { limit: Some(Bytes::mib(64)), ..Options::default() });
    let stream = pool.stream().unwrap();
    let _held = DeviceBuffer::<u8>::uninitialized(&stream, 48 << 20).unwrap();
    let error = DeviceBuffer::<u8>::uninitialized(&stream, 32 << 20).unwrap_err();
    let PoolError::OutOfMemory(error) = error else { panic!("{error}") };
    let stats = error.pool.stats;
    assert_eq!(stats.reserved, stats.live + stats.rounding + stats.cached);
    assert_eq!(error.pool.requested, 32 << 20);
    let device = error.device.unwrap();
    assert_eq!(
        device.total.get(),
        device.free.get() + error.elsewhere().unwrap().get() + error.pool.stats.reserved
    );
}

#[test]
fn a_pool_that_is_dropped_gives_everything_back() {
    let (gpu, pool) = pool(Options::default());
    let before = gpu.driver.memory().unwrap().free;
    let stream = pool.stream().unwrap();
    drop(DeviceBuffer::<u8>::uninitialized(&stream, 100 << 20).unwrap());
    drop(stream);
    drop(pool);
    assert_eq!(gpu.driver.memory().unwrap().free, before);
}

#[test]
fn memory_for_every_stream_is_none_that_the_gpu_may_still_use() {
    let (gpu, pool) = pool(Options { limit: Some(Bytes::mib(64)), ..Options::default() });
    let stream = pool.stream().unwrap();
    let busy = DeviceBuffer::<u8>::uninitialized(&stream, 24 << 20).unwrap();
    let address = busy.address();
    gpu.keep_busy(stream.id().0, 1_000_000);
    drop(busy);
    let other = pool.allocate(24 << 20, EVERY_STREAM, Site::here()).unwrap();
    assert!(other != address || stream.stream().is_done().unwrap(), "the GPU is not done with it");
    // SAFETY: nothing uses it.
    unsafe { pool.free(other, EVERY_STREAM, Site::here()) }.unwrap();
    gpu.advance(2_000_000);
    let all = pool.allocate(60 << 20, EVERY_STREAM, Site::here()).unwrap();
    // SAFETY: nothing uses it.
    unsafe { pool.free(all, EVERY_STREAM, Site::here()) }.unwrap();
    assert_eq!(pool.stats().live, 0);
}

#[test]
fn nothing_is_left_after_a_trim_whatever_stream_memory_was_freed_on() {
    let (_gpu, pool) = pool(Options::default());
    let streams = [pool.stream().unwrap(), pool.stream().unwrap()];
    let mut held = Vec::new();
    for round in 0..400_u64 {
        let size = 1 + round * 7919 % (1 << if round % 4 == 0 { 22 } else { 14 });
        held.push(DeviceBuffer::<u8>::zeroed(&streams[(round % 2) as usize], size as usize).unwrap());
        if round % 3 == 0 {
            drop(held.remove((round as usize * 31) % held.len()));
        }
    }
    let everywhere = pool.allocate(5 << 20, EVERY_STREAM, Site::here()).unwrap();
    held.clear();
    // SAFETY: nothing uses it.
    unsafe { pool.free(everywhere, EVERY_STREAM, Site::here()) }.unwrap();
    let [first, _kept] = streams;
    drop(first);
    pool.trim(0);
    assert_eq!(pool.stats().reserved, 0);
}
