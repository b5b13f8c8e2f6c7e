//! Shared test support: the software GPU, loaded once into the test process, with its clock and faults.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses part of it, and a test may panic")]

pub(crate) mod aside;

use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use makeroom_cuda::{Context, Driver};
use makeroom_place::pool::BlockState;
use makeroom_pool::{Allocator as _, Pool};

/// The machine: two cards, and contexts without overhead so that figures are exact.
const MACHINE: &str = "devices=2,memory=1GiB,context=0,module=0";

type GetAttribute = unsafe extern "C" fn(*mut i32, u32, i32) -> u32;

static GET_ATTRIBUTE: OnceLock<GetAttribute> = OnceLock::new();

/// `cuDeviceGetAttribute` of a driver that does not know the host node attribute.
unsafe extern "C" fn answer_no(value: *mut i32, attribute: u32, device: i32) -> u32 {
    if attribute == makeroom_cuda::Attribute::HostNodeVirtualMemory as u32 {
        return 1;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { GET_ATTRIBUTE.get().unwrap()(value, attribute, device) }
}

/// The software GPU's driver, locked for one test at a time.
pub(crate) struct Gpu {
    pub(crate) driver: &'static Driver,
    library: libloading::Library,
    context: Context,
}

/// Waits for earlier tests, and makes the first card's context current.
pub(crate) fn gpu(test_file: &str) -> MutexGuard<'static, Gpu> {
    static GPU: OnceLock<Mutex<Gpu>> = OnceLock::new();
    let gpu = GPU.get_or_init(|| Mutex::new(open(test_file))).lock().unwrap_or_else(PoisonError::into_inner);
    gpu.make_current();
    gpu
}

fn open(test_file: &str) -> Gpu {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pool").join(test_file);
    let _ = std::fs::remove_dir_all(&directory);
    makeroom_simcard::install::link_next_to(&std::env::current_exe().unwrap(), &directory).unwrap();
    // SAFETY: every test of the file goes through `gpu` first and waits there, so no thread reads the environment.
    unsafe {
        std::env::set_var("MAKEROOM_SIMGPU", MACHINE);
        std::env::set_var("MAKEROOM_SIMGPU_DIR", &directory);
    }
    let path = directory.join("libcuda.so.1");
    let path = path.to_str().unwrap();
    let driver: &'static Driver = Box::leak(Box::new(Driver::open(path).unwrap()));
    // SAFETY: the driver is already loaded.
    let library = unsafe { libloading::Library::new(path) }.unwrap();
    let context = driver.device(0).unwrap().retain_primary().unwrap();
    Gpu { driver, library, context }
}

impl Gpu {
    /// Makes the first card's context current.
    pub(crate) fn make_current(&self) {
        self.context.make_current().unwrap();
    }

    /// Keeps a stream busy for some simulated time.
    pub(crate) fn keep_busy(&self, stream: u64, nanoseconds: u64) {
        type Enqueue = unsafe extern "C" fn(u64, u64) -> u32;
        // SAFETY: the type matches the function.
        let enqueue = unsafe { self.library.get::<Enqueue>(c"makeroom_simgpu_enqueue_work") }.unwrap();
        // SAFETY: numbers only.
        assert_eq!(unsafe { enqueue(stream, nanoseconds) }, 0);
    }

    /// Advances the clock.
    pub(crate) fn advance(&self, nanoseconds: u64) {
        // SAFETY: the type matches the function.
        let advance =
            unsafe { self.library.get::<unsafe extern "C" fn(u64) -> u32>(c"makeroom_simgpu_advance") }
                .unwrap();
        // SAFETY: a number only.
        assert_eq!(unsafe { advance(nanoseconds) }, 0);
    }

    /// The clock, in nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        // SAFETY: the type matches the function.
        let now =
            unsafe { self.library.get::<unsafe extern "C" fn() -> u64>(c"makeroom_simgpu_now") }.unwrap();
        // SAFETY: no arguments.
        unsafe { now() }
    }

    /// The same driver with only some of its functions.
    pub(crate) fn resolve(&self, is_there: impl Fn(&CStr) -> bool) -> &'static Driver {
        let find = |name: &CStr| {
            // SAFETY: only the address is taken.
            let symbol = unsafe { self.library.get::<*mut c_void>(name) }.ok().filter(|_| is_there(name))?;
            NonNull::new(*symbol)
        };
        // SAFETY: the functions are the driver's, which is never unloaded.
        Box::leak(Box::new(unsafe { Driver::resolve(find) }.unwrap()))
    }

    /// The same driver, reporting that it cannot map memory of a host node.
    pub(crate) fn without_host_nodes(&self) -> &'static Driver {
        let name = c"cuDeviceGetAttribute";
        // SAFETY: the type matches the function.
        let real = unsafe { self.library.get::<GetAttribute>(name) }.unwrap();
        let _ = GET_ATTRIBUTE.set(*real);
        let find = |wanted: &CStr| {
            if wanted == name {
                return NonNull::new(answer_no as *mut c_void);
            }
            // SAFETY: only the address is taken.
            NonNull::new(*unsafe { self.library.get::<*mut c_void>(wanted) }.ok()?)
        };
        // SAFETY: the functions are the driver's, which is never unloaded, and a wrapper for one.
        Box::leak(Box::new(unsafe { Driver::resolve(find) }.unwrap()))
    }

    /// Makes the n-th call of a function fail, counted from now.
    pub(crate) fn fail_nth(&self, function: &str, number: u64, error: u32) {
        type Fail = unsafe extern "C" fn(*const std::ffi::c_char, u64, u32) -> u32;
        let name = CString::new(function).unwrap();
        // SAFETY: the type matches the function.
        let fail = unsafe { self.library.get::<Fail>(c"makeroom_simgpu_fail") }.unwrap();
        // SAFETY: the name is NUL-terminated.
        assert_eq!(unsafe { fail(name.as_ptr(), number, error) }, 0);
    }

    /// Removes the faults that have not occurred. Returns how many.
    pub(crate) fn forget_faults(&self) -> u64 {
        type Forget = unsafe extern "C" fn() -> u64;
        // SAFETY: the type matches the function.
        let forget = unsafe { self.library.get::<Forget>(c"makeroom_simgpu_forget_faults") }.unwrap();
        // SAFETY: no arguments.
        unsafe { forget() }
    }

    /// Resets a card's primary context while it is in use.
    pub(crate) fn reset_primary(&self, device: i32) {
        type Reset = unsafe extern "C" fn(i32) -> u32;
        // SAFETY: the type matches the function.
        let reset = unsafe { self.library.get::<Reset>(c"cuDevicePrimaryCtxReset_v2") }.unwrap();
        // SAFETY: a number only.
        assert_eq!(unsafe { reset(device) }, 0);
    }
}

/// Installs the context that replaces one that was reset.
pub(crate) fn renew_context(mut gpu: MutexGuard<'static, Gpu>, context: Context) {
    gpu.context = context;
}

/// The pool's statistics and snapshot agree: nothing overlaps, everything adds up.
pub(crate) fn check_account(pool: &Pool) {
    let (stats, picture) = (pool.stats(), pool.snapshot());
    assert_eq!(stats.reserved, stats.live + stats.rounding + stats.cached, "{stats:?}");
    assert!(stats.pending <= stats.live, "{stats:?}");
    let (mut end, mut live) = (0, 0);
    let pieces = picture.segments.iter().flat_map(|segment| &segment.pieces).chain(&picture.unmapped);
    let mut handles: Vec<u64> = pieces.map(|piece| piece.handle.0).collect();
    handles.sort_unstable();
    assert!(handles.windows(2).all(|two| two[0] != two[1]), "a handle lies in two places: {picture:?}");
    for segment in &picture.segments {
        assert!(segment.address.0 >= end, "segments overlap: {picture:?}");
        end = segment.address.0 + segment.size;
        assert_eq!(segment.size, segment.pieces.iter().map(|piece| piece.size).sum::<u64>());
        let mut next = segment.address.0;
        for block in &segment.blocks {
            assert_eq!(block.address.0, next, "blocks lie one behind the other");
            next += block.size;
            match block.state {
                BlockState::Live { requested, .. } | BlockState::Pending { requested, .. } => {
                    assert!(requested <= block.size);
                    live += requested;
                }
                BlockState::Free => {}
            }
        }
        assert_eq!(next, end, "blocks fill their segment");
    }
    assert_eq!(live, stats.live);
}
