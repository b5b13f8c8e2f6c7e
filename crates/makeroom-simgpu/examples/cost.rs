//! Cost of calls to the simulated driver: `cargo run --release -p makeroom-simgpu --example cost`.
//!
//! The functions are called through `dlsym`, as programs do. Each figure is the best of several rounds, in
//! nanoseconds for the named pair.

use std::ffi::{CString, c_void};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

type Allocate = extern "C" fn(*mut u64, u64) -> u32;
type Free = extern "C" fn(u64) -> u32;
type AllocateOn = extern "C" fn(*mut u64, u64, u64) -> u32;
type FreeOn = extern "C" fn(u64, u64) -> u32;

fn open(path: &Path) -> Option<*mut c_void> {
    let path = CString::new(path.to_str()?).ok()?;
    // SAFETY: the path is NUL-terminated.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    (!library.is_null()).then_some(library)
}

/// A function of the library.
///
/// # Safety
///
/// The type must be the function's.
unsafe fn function<F: Copy>(library: *mut c_void, name: &str) -> Option<F> {
    let name = CString::new(name).ok()?;
    // SAFETY: the library is open, and the name is NUL-terminated.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: the caller promises that F is the function's type, which is one pointer wide.
    (!symbol.is_null()).then(|| unsafe { std::mem::transmute_copy(&symbol) })
}

/// Nanoseconds per run of the body, in the best round.
fn measure(times: u32, mut body: impl FnMut()) -> f64 {
    let rounds = (0..9).map(|_| {
        let start = Instant::now();
        (0..times).for_each(|_| body());
        start.elapsed().as_nanos() as f64 / f64::from(times)
    });
    rounds.fold(f64::INFINITY, f64::min)
}

fn run(library: *mut c_void) -> Option<Vec<(&'static str, f64)>> {
    let (mut context, mut stream, mut address) = (0u64, 0u64, 0u64);
    // SAFETY: every type is that of the driver's function.
    let (init, create, create_stream, allocate, free, allocate_on, free_on, version) = unsafe {
        let init: extern "C" fn(u32) -> u32 = function(library, "cuInit")?;
        let create: extern "C" fn(*mut u64, u32, i32) -> u32 = function(library, "cuCtxCreate_v2")?;
        let create_stream: extern "C" fn(*mut u64, u32) -> u32 = function(library, "cuStreamCreate")?;
        let allocate: Allocate = function(library, "cuMemAlloc_v2")?;
        let free: Free = function(library, "cuMemFree_v2")?;
        let allocate_on: AllocateOn = function(library, "cuMemAllocAsync")?;
        let free_on: FreeOn = function(library, "cuMemFreeAsync")?;
        let version: extern "C" fn(*mut i32) -> u32 = function(library, "cuDriverGetVersion")?;
        (init, create, create_stream, allocate, free, allocate_on, free_on, version)
    };
    init(0);
    create(&raw mut context, 0, 0);
    create_stream(&raw mut stream, 1);
    let mut costs = Vec::new();
    let mut number = 0;
    costs.push((
        "cuDriverGetVersion",
        measure(100_000, || {
            version(&raw mut number);
        }),
    ));
    let mut pair = |bytes: u64| {
        measure(50_000, || {
            allocate(&raw mut address, bytes);
            free(address);
        })
    };
    costs.push(("cuMemAlloc + cuMemFree, 1 KiB, nothing else live", pair(1 << 10)));
    costs.push(("cuMemAlloc + cuMemFree, 2 MiB", pair(2 << 20)));
    costs.push(("cuMemAlloc + cuMemFree, 256 MiB", pair(256 << 20)));
    let mut live = vec![0; 4000];
    for (position, place) in live.iter_mut().enumerate() {
        allocate(place, 512 + 977 * position as u64 % 100_000);
    }
    live.iter().step_by(3).for_each(|address| _ = free(*address));
    let mut pair = |bytes: u64| {
        measure(50_000, || {
            allocate(&raw mut address, bytes);
            free(address);
        })
    };
    costs.push(("cuMemAlloc + cuMemFree, 1 KiB, 2700 blocks live", pair(1 << 10)));
    costs.push(("cuMemAlloc + cuMemFree, 2 MiB, 2700 blocks live", pair(2 << 20)));
    let mut pair = |bytes: u64| {
        measure(50_000, || {
            allocate_on(&raw mut address, bytes, stream);
            free_on(address, stream);
        })
    };
    costs.push(("cuMemAllocAsync + cuMemFreeAsync, 1 KiB", pair(1 << 10)));
    costs.push(("cuMemAllocAsync + cuMemFreeAsync, 20 MiB", pair(20 << 20)));
    Some(costs)
}

fn main() -> std::io::Result<()> {
    let directory = std::env::temp_dir().join(format!("makeroom-simgpu-cost-{}", std::process::id()));
    makeroom_simcard::install::beside(&std::env::current_exe()?, &directory)?;
    // SAFETY: no other thread is running yet.
    unsafe { std::env::set_var("MAKEROOM_SIMGPU_DIR", &directory) };
    let costs = open(&directory.join("libcuda.so.1")).and_then(run).unwrap_or_default();
    let mut out = std::io::stdout();
    for (what, nanoseconds) in costs {
        writeln!(out, "{nanoseconds:8.0} ns  {what}")?;
    }
    std::fs::remove_dir_all(directory)
}
