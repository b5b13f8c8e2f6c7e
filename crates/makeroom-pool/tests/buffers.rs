//! Buffers on the software GPU: what they hold, and that every path gives their memory back.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use makeroom_core::Bytes;
use makeroom_pool::{Allocator as _, DeviceBuffer, Options, Pool, PoolError};

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
