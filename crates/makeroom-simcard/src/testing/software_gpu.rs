//! The driver of the software GPU, loaded into the test process, with its clock and its faults.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use super::Stage;

/// The loaded driver. It is never unloaded.
#[derive(Debug)]
pub struct SoftwareGpu {
    path: PathBuf,
    handle: NonNull<c_void>,
}

// SAFETY: the handle of a library that is never unloaded is valid in every thread.
unsafe impl Send for SoftwareGpu {}
// SAFETY: as above; `dlsym` may be called by several threads at once.
unsafe impl Sync for SoftwareGpu {}

impl SoftwareGpu {
    /// Loads the driver of a test's directory.
    ///
    /// # Safety
    ///
    /// No other thread reads or writes the environment: the machine's description goes there.
    pub unsafe fn load(stage: &Stage) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            std::env::set_var("MAKEROOM_SIMGPU", stage.machine());
            std::env::set_var("MAKEROOM_SIMGPU_DIR", stage.directory());
        }
        Self::open(&stage.path("libcuda.so.1"))
    }

    /// Opens any library, such as the software NVML.
    pub fn open(path: &Path) -> Self {
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the path is NUL-terminated; the library's initializers are those of the Rust runtime.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        let handle = NonNull::new(handle).unwrap_or_else(|| panic!("{} cannot be loaded", path.display()));
        Self { path: path.to_owned(), handle }
    }

    /// The path of the library.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The address of a symbol.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is open, and the name is NUL-terminated.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }

    /// A function, with the caller's type.
    ///
    /// # Safety
    ///
    /// The type must be the function's.
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> F {
        let symbol = self.symbol(name).unwrap_or_else(|| panic!("no {name:?} in {}", self.path.display()));
        assert_eq!(size_of::<F>(), size_of::<NonNull<c_void>>());
        // SAFETY: the caller promises that F is the function's type; both are one pointer wide.
        unsafe { std::mem::transmute_copy(&symbol) }
    }

    /// Keeps a stream busy for some simulated time.
    pub fn keep_busy(&self, stream: u64, nanoseconds: u64) {
        type Enqueue = unsafe extern "C" fn(u64, u64) -> u32;
        // SAFETY: the type matches the function, which takes numbers only.
        let error = unsafe { self.function::<Enqueue>(c"makeroom_simgpu_enqueue_work")(stream, nanoseconds) };
        assert_eq!(error, 0);
    }

    /// Advances the clock.
    pub fn advance(&self, nanoseconds: u64) {
        type Advance = unsafe extern "C" fn(u64) -> u32;
        // SAFETY: the type matches the function, which takes a number only.
        assert_eq!(unsafe { self.function::<Advance>(c"makeroom_simgpu_advance")(nanoseconds) }, 0);
    }

    /// The clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        type Now = unsafe extern "C" fn() -> u64;
        // SAFETY: the type matches the function.
        unsafe { self.function::<Now>(c"makeroom_simgpu_now")() }
    }

    /// Makes the n-th call of a driver function fail, counted from now.
    pub fn fail_nth(&self, function: &str, number: u64, error: u32) {
        type Fail = unsafe extern "C" fn(*const c_char, u64, u32) -> u32;
        let name = CString::new(function).unwrap();
        // SAFETY: the type matches the function, and the name is NUL-terminated.
        let failed = unsafe { self.function::<Fail>(c"makeroom_simgpu_fail")(name.as_ptr(), number, error) };
        assert_eq!(failed, 0);
    }

    /// Removes the faults that have not occurred, and returns their number.
    pub fn forget_faults(&self) -> u64 {
        type Forget = unsafe extern "C" fn() -> u64;
        // SAFETY: the type matches the function.
        unsafe { self.function::<Forget>(c"makeroom_simgpu_forget_faults")() }
    }
}
