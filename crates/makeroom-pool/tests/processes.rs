//! Forked children, destroyed contexts, and process exit in any order.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::cell::RefCell;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use makeroom_core::Bytes;
use makeroom_pool::layers::{Checked, Limit, Spill, SpillOptions, Track};
use makeroom_pool::{Allocator, DeviceBuffer, Options, Pool, PoolError, PoolStream};

const MIB: usize = 1 << 20;

/// All layers over a pool of 64 MiB.
fn layers(pool: &Pool) -> Arc<dyn Allocator> {
    let spill = Spill::new(pool.clone(), 0, SpillOptions::with_quota(Bytes::mib(64))).unwrap();
    let checked = Checked::new(spill, Bytes::mib(4), |violation| panic!("{violation}"));
    Arc::new(Track::new(Limit::new(checked, Bytes::mib(512))))
}

fn small_pool(driver: &'static makeroom_cuda::Driver) -> Pool {
    let pool = Pool::new(driver, 0, Options { limit: Some(Bytes::mib(64)), ..Options::default() }).unwrap();
    pool.make_current().unwrap();
    pool
}

/// Forks; the child runs `what` and exits without running anything else of the parent. Returns its status: 0 if
/// `what` returned true. A child that hangs is killed by its alarm, which is a different status.
fn in_child(what: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls `what` and `_exit`. Locks held by threads that it lacks are the point of the test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the process after ten seconds.
        unsafe { libc::alarm(10) };
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(what)).unwrap_or(false);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(!answer)) };
    }
    let mut status = 0;
    // SAFETY: it is this process's own child, and the out-parameter is valid.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn a_forked_child_keeps_away_and_the_parent_goes_on() {
    let gpu = common::gpu("processes");
    let before = gpu.driver.memory().unwrap().free;
    let pool = small_pool(gpu.driver);
    let allocator = layers(&pool);
    let stream = PoolStream::new(Arc::clone(&allocator)).unwrap();
    let values = vec![7_u8; MIB];
    let kept = DeviceBuffer::from_host(&stream, &values).unwrap();
    let stop = AtomicBool::new(false);
    let statuses: Vec<i32> = std::thread::scope(|scope| {
        // Threads that are likely to hold a lock at the moment of the fork.
        for _ in 0..3 {
            scope.spawn(|| {
                pool.make_current().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let buffers: Vec<_> =
                        (1..30).map(|kib| DeviceBuffer::<u8>::zeroed(&stream, kib << 10)).collect();
                    assert!(buffers.iter().all(Result::is_ok));
                }
            });
        }
        let fork = |round: u64| {
            std::thread::sleep(Duration::from_micros(300 * round));
            in_child(|| {
                let refused = DeviceBuffer::<u8>::uninitialized(&stream, 100);
                let is_told = matches!(refused, Err(PoolError::Forked)) && kept.to_host().is_err();
                let also_told = matches!(pool.make_current(), Err(PoolError::Forked));
                allocator.trim(0);
                let nothing = allocator.stats().live == 0 && !allocator.reaches(kept.address());
                // SAFETY: these copies belong to the child; the parent has its own.
                unsafe {
                    drop(std::ptr::read(&raw const kept));
                    drop(std::ptr::read(&raw const stream));
                    drop(std::ptr::read(&raw const allocator));
                    drop(std::ptr::read(&raw const pool));
                }
                is_told && also_told && nothing
            })
        };
        let statuses = (0..20).map(fork).collect();
        stop.store(true, Ordering::Relaxed);
        statuses
    });
    assert!(statuses.iter().all(|status| *status == 0), "{statuses:?}");
    assert_eq!(kept.to_host().unwrap(), values, "the parent's memory is as it was");
    drop((kept, stream, allocator, pool));
    assert_eq!(gpu.driver.memory().unwrap().free, before);
}

#[test]
fn a_pool_outlives_its_context_without_harm() {
    let gpu = common::gpu("processes");
    let before = gpu.driver.memory().unwrap().free;
    let pool = small_pool(gpu.driver);
    let allocator = layers(&pool);
    let stream = PoolStream::new(Arc::clone(&allocator)).unwrap();
    let kept = DeviceBuffer::from_host(&stream, &vec![1_u8; 40 * MIB]).unwrap();
    let spilled = DeviceBuffer::from_host(&stream, &vec![1_u8; 40 * MIB]).unwrap();
    drop(DeviceBuffer::<u8>::zeroed(&stream, MIB).unwrap());
    gpu.reset_primary(0);
    assert!(kept.to_host().is_err());
    // An error or memory, both are fine.
    for size in [100, MIB, 30 * MIB] {
        drop(DeviceBuffer::<u8>::uninitialized(&stream, size));
    }
    allocator.trim(0);
    drop((kept, spilled, stream, allocator, pool));
    // A new context, and a new pool in it, work.
    let context = gpu.driver.device(0).unwrap().retain_primary().unwrap();
    context.make_current().unwrap();
    assert_eq!(gpu.driver.memory().unwrap().free, before, "nothing is left of the pool");
    let pool = small_pool(gpu.driver);
    let stream = pool.stream().unwrap();
    let values: Vec<u8> = (0..=255).collect();
    assert_eq!(DeviceBuffer::from_host(&stream, &values).unwrap().to_host().unwrap(), values);
    drop((stream, pool));
    common::renew_context(gpu, context);
}

/// Keeps memory until process exit, in the child of the test below.
static KEPT: OnceLock<(PoolStream, DeviceBuffer<u8>)> = OnceLock::new();

thread_local! {
    static OF_THREAD: RefCell<Vec<DeviceBuffer<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Runs at process exit, before or after the driver's own handler.
extern "C" fn at_exit() {
    if let Some((stream, buffer)) = KEPT.get() {
        drop(DeviceBuffer::<u8>::zeroed(stream, 4096));
        drop(buffer.to_host());
        stream.allocator().trim(0);
    }
}

/// Runs only in a child of the test below; the variable sets the order of destruction.
#[test]
fn ending() {
    let Ok(order) = std::env::var("MAKEROOM_TEST_ENDING") else { return };
    // Registered before the driver is loaded it runs after the driver's handler, else before it.
    let register = || {
        // SAFETY: the function takes no arguments and does not unwind.
        assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
    };
    if order.contains("handler-last") {
        register();
    }
    let gpu = common::gpu("ending");
    if order.contains("handler-first") {
        register();
    }
    let pool = small_pool(gpu.driver);
    let stream = PoolStream::new(layers(&pool)).unwrap();
    let buffer = DeviceBuffer::zeroed(&stream, 50 * MIB).unwrap();
    let spilled = DeviceBuffer::zeroed(&stream, 30 * MIB).unwrap();
    OF_THREAD.with_borrow_mut(|kept| kept.push(spilled));
    let other = stream.clone();
    let in_thread = std::thread::spawn(move || {
        // If the main thread does not wait for this one, the driver may be gone already.
        let Ok(kept) = DeviceBuffer::uninitialized(&other, 1000) else { return };
        OF_THREAD.with_borrow_mut(|of_thread| of_thread.push(kept));
        drop(other);
    });
    if order.contains("joined") {
        in_thread.join().unwrap();
    }
    if order.contains("static") {
        assert!(KEPT.set((stream, buffer)).is_ok());
    } else {
        std::mem::forget((stream, buffer));
    }
    drop(pool);
    // SAFETY: the handlers run as at every exit; other threads are waiting or done.
    unsafe { libc::exit(0) }
}

#[test]
fn a_process_ends_in_any_order() {
    let orders = ["static,handler-last,joined", "static,handler-first", "forgotten,joined", "static"];
    for order in orders {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "ending", "--nocapture", "--test-threads=1"]);
        let output = child.env("MAKEROOM_TEST_ENDING", order).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{order}: {:?}\n{said}", output.status);
        assert!(said.is_empty(), "{order}: {said}");
    }
}
