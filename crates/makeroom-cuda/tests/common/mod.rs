//! Shared test support: the software GPU, loaded once into the test process, with its clock and faults.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses part of it, and a test may panic")]

use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use makeroom_cuda::{Context, Driver};

/// The machine: two cards, and contexts without overhead so that figures are exact.
const MACHINE: &str = "devices=2,memory=1GiB,context=0,module=0";

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
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda").join(test_file);
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

    /// Makes the next call of a function fail.
    pub(crate) fn fail_next(&self, function: &str, error: u32) {
        type Fail = unsafe extern "C" fn(*const std::ffi::c_char, u64, u32) -> u32;
        let name = CString::new(function).unwrap();
        // SAFETY: the type matches the function.
        let fail = unsafe { self.library.get::<Fail>(c"makeroom_simgpu_fail") }.unwrap();
        // SAFETY: the name is NUL-terminated.
        assert_eq!(unsafe { fail(name.as_ptr(), 1, error) }, 0);
    }
}
