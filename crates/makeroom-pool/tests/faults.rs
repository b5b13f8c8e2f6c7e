//! Every driver call fails in turn: the pool stays consistent, the caller gets an error or working memory, and
//! nothing leaks.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;

use common::aside::{Gate, block_of_a_side};
use common::{Gpu, check_account};
use makeroom_core::Bytes;
use makeroom_cuda::raw::NAMES;
use makeroom_pool::layers::{Checked, Limit, Spill, SpillOptions, Track};
use makeroom_pool::{Allocator, DeviceBuffer, Options, Pool, PoolStream, Result};

const KIB: usize = 1 << 10;

/// A buffer, and the value of its first and last elements.
struct Written {
    buffer: DeviceBuffer<u32>,
    value: u32,
}

/// Elements written at both ends: writing all of them would take minutes.
const END: usize = 64;

impl Written {
    fn new(stream: &PoolStream, kib: usize, value: u32) -> Result<Self> {
        let mut buffer = DeviceBuffer::uninitialized(stream, kib * KIB / 4)?;
        let length = buffer.len();
        for start in [0, length - END] {
            buffer.as_mut_slice().slice_mut(start..start + END)?.copy_from_host(&[value; END])?;
        }
        Ok(Self { buffer, value })
    }

    /// Checks the written values, unless they cannot be read now.
    fn verify(&self) -> Result<()> {
        for start in [0, self.buffer.len() - END] {
            let found = self.buffer.as_slice().slice(start..start + END)?.to_host()?;
            assert_eq!(found, [self.value; END], "somebody else wrote here");
        }
        Ok(())
    }
}

/// Uses every feature, and continues after each error.
fn use_everything(gpu: &Gpu, keeps_sites: bool, errors: &mut Vec<String>) -> Result<()> {
    let mut note = |result: Result<()>| errors.extend(result.err().map(|error| error.to_string()));
    let options = Options { limit: Some(Bytes::mib(32)), keeps_sites, ..Options::default() };
    let pool = Pool::new(gpu.driver, 0, options)?;
    pool.make_current()?;
    let spill = Spill::new(pool.clone(), 0, SpillOptions::with_quota(Bytes::mib(24)))?;
    let checked = Checked::new(spill, Bytes::kib(600), |violation| panic!("{violation}"));
    let layers: Arc<dyn Allocator> = Arc::new(Track::new(Limit::new(checked, Bytes::mib(64))));
    let streams = [PoolStream::new(Arc::clone(&layers))?, PoolStream::new(Arc::clone(&layers))?];
    let mut held = Vec::new();
    for (index, kib) in [300, 1, 5000, 9000, 40, 2048, 7000, 13000, 500, 6000].into_iter().enumerate() {
        match Written::new(&streams[index % 2], kib, index as u32) {
            Ok(written) => {
                gpu.keep_busy(streams[0].id().0, 1000);
                note(written.buffer.record_stream(&streams[0]));
                held.push(written);
            }
            Err(error) => note(Err(error)),
        }
        if index % 3 == 2 {
            held.swap_remove(0);
        }
        check_account(&pool);
        gpu.advance(700);
        for written in &held {
            note(written.verify());
        }
    }
    note(streams[1].wait_for(&streams[0]));
    held.truncate(1);
    pool.collect();
    layers.trim(8 << 20);
    check_account(&pool);
    match Written::new(&streams[1], 20_000, 77) {
        Ok(large) => {
            for written in &held {
                note(written.verify());
            }
            note(large.verify());
            note(large.buffer.free());
        }
        Err(error) => note(Err(error)),
    }
    layers.trim(0);
    check_account(&pool);
    Ok(())
}

fn fail_in_turn(gpu: &Gpu, keeps_sites: bool, function: &str, error: u32) -> u64 {
    let device = || gpu.driver.memory().unwrap().free;
    for number in 1.. {
        let before = device();
        gpu.fail_nth(function, number, error);
        let mut errors = Vec::new();
        let answer = use_everything(gpu, keeps_sites, &mut errors);
        let was_hit = gpu.forget_faults() == 0;
        gpu.make_current();
        gpu.driver.synchronize().unwrap();
        let what = format!("call {number} of {function} answering {error} ({answer:?}, {errors:?})");
        assert_eq!(device(), before, "{what} leaks");
        if !was_hit {
            assert!(answer.is_ok() && errors.is_empty(), "{what}: nothing failed");
            return number - 1;
        }
    }
    unreachable!("calls do not come to an end")
}

#[test]
fn every_driver_call_may_fail() {
    let gpu = common::gpu("faults");
    let mut errors = Vec::new();
    use_everything(&gpu, true, &mut errors).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    let mut called = Vec::new();
    for function in NAMES {
        let calls = fail_in_turn(&gpu, true, function, 2);
        if calls > 0 {
            called.push((*function, calls));
        }
    }
    let names: Vec<_> = called.iter().map(|(name, _)| *name).collect();
    for expected in
        ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuEventRecord"]
    {
        assert!(names.contains(&expected), "{expected} was not called: {called:?}");
    }
    // A sticky error, and an unknown one.
    for function in ["cuMemCreate", "cuEventRecord", "cuMemUnmap", "cuCtxSynchronize"] {
        fail_in_turn(&gpu, true, function, 700);
        fail_in_turn(&gpu, true, function, 999);
    }
}

/// The same with small blocks in an arena, after contention.
#[test]
fn every_driver_call_may_fail_beside_the_pool() {
    let gpu = common::gpu("faults");
    let aside = |function: &str| {
        gpu.make_current();
        let gate = Gate::new();
        let options = Options { keeps_sites: false, watcher: Some(gate.clone()), ..Options::default() };
        let pool = Pool::new(gpu.driver, 0, options).unwrap();
        let stream = pool.stream().unwrap();
        block_of_a_side(&pool, &gate, &stream, 4096);
        drop((stream, pool));
        let mut errors = Vec::new();
        use_everything(&gpu, false, &mut errors).unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        fail_in_turn(&gpu, false, function, 2)
    };
    let functions =
        ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"];
    for function in functions {
        // A new thread each time: contention is counted per thread.
        let called = std::thread::scope(|scope| scope.spawn(|| aside(function)).join().unwrap());
        assert!(called > 0, "{function} was not called");
    }
}
