//! The cost of calls to the simulated driver: `cargo bench -p makeroom-simgpu`.
//!
//! The functions are called through `dlsym`, as programs do; a pair is an allocation and its free.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::sync::LazyLock;

use divan::Bencher;
use makeroom_simcard::testing::{SoftwareGpu, Stage};

type Allocate = extern "C" fn(*mut u64, u64) -> u32;
type Free = extern "C" fn(u64) -> u32;
type AllocateOn = extern "C" fn(*mut u64, u64, u64) -> u32;
type FreeOn = extern "C" fn(u64, u64) -> u32;

/// The driver's functions, in a process with a context, a stream and memory.
struct Driver {
    version: extern "C" fn(*mut i32) -> u32,
    allocate: Allocate,
    free: Free,
    allocate_on: AllocateOn,
    free_on: FreeOn,
    stream: u64,
}

static DRIVER: LazyLock<Driver> = LazyLock::new(|| {
    let stage = Stage::new(std::env::temp_dir(), format!("makeroom-simgpu-cost-{}", std::process::id()));
    // SAFETY: the benchmarks run one after another, and no other thread reads the environment.
    let driver = begin(&unsafe { SoftwareGpu::load(&stage) }).unwrap();
    std::fs::remove_dir_all(stage.directory()).unwrap();
    driver
});

fn begin(library: &SoftwareGpu) -> Option<Driver> {
    let (mut context, mut stream) = (0_u64, 0_u64);
    // SAFETY: every type is that of the driver's function.
    unsafe {
        let init: extern "C" fn(u32) -> u32 = library.function(c"cuInit");
        let create: extern "C" fn(*mut u64, u32, i32) -> u32 = library.function(c"cuCtxCreate_v2");
        let create_stream: extern "C" fn(*mut u64, u32) -> u32 = library.function(c"cuStreamCreate");
        let status = init(0) | create(&raw mut context, 0, 0) | create_stream(&raw mut stream, 1);
        (status == 0).then_some(())?;
        Some(Driver {
            version: library.function(c"cuDriverGetVersion"),
            allocate: library.function(c"cuMemAlloc_v2"),
            free: library.function(c"cuMemFree_v2"),
            allocate_on: library.function(c"cuMemAllocAsync"),
            free_on: library.function(c"cuMemFreeAsync"),
            stream,
        })
    }
}

fn main() {
    divan::main();
}

#[divan::bench]
fn driver_version(bencher: Bencher<'_, '_>) {
    let mut number = 0;
    bencher.bench_local(|| (DRIVER.version)(&raw mut number));
}

fn pair(bytes: u64) {
    let mut address = 0;
    assert_eq!((DRIVER.allocate)(&raw mut address, bytes) | (DRIVER.free)(address), 0);
}

#[divan::bench(args = [1 << 10, 2 << 20, 256 << 20])]
fn pair_alone(bencher: Bencher<'_, '_>, bytes: u64) {
    bencher.bench_local(|| pair(bytes));
}

/// Of 4000 blocks, every third is freed again.
#[divan::bench(args = [1 << 10, 2 << 20])]
fn pair_among_2700_blocks(bencher: Bencher<'_, '_>, bytes: u64) {
    let mut live = vec![0; 4000];
    for (position, place) in live.iter_mut().enumerate() {
        assert_eq!((DRIVER.allocate)(place, 512 + 977 * position as u64 % 100_000), 0);
    }
    live.iter().step_by(3).for_each(|address| _ = (DRIVER.free)(*address));
    bencher.bench_local(|| pair(bytes));
    let rest = live.iter().enumerate().filter(|(position, _)| position % 3 != 0);
    rest.for_each(|(_, address)| _ = (DRIVER.free)(*address));
}

#[divan::bench(args = [1 << 10, 20 << 20])]
fn pair_in_stream_order(bencher: Bencher<'_, '_>, bytes: u64) {
    let mut address = 0;
    bencher.bench_local(|| {
        (DRIVER.allocate_on)(&raw mut address, bytes, DRIVER.stream)
            | (DRIVER.free_on)(address, DRIVER.stream)
    });
}
