//! Shared test support: the software GPU, loaded once into the test process, with makeroom's wrapper of its driver.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses part of it, and a test may panic")]

use std::ffi::CStr;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use makeroom_cuda::{Context, Driver};
use makeroom_simcard::testing::{SoftwareGpu, Stage};

/// The machine: two cards, and contexts without overhead so that figures are exact.
const MACHINE: &str = "devices=2,memory=1GiB,context=0,module=0";

/// The software GPU's driver, locked for one test at a time.
pub(crate) struct Gpu {
    pub(crate) driver: &'static Driver,
    software: SoftwareGpu,
    context: Context,
}

/// Its clock and its faults.
impl Deref for Gpu {
    type Target = SoftwareGpu;

    fn deref(&self) -> &SoftwareGpu {
        &self.software
    }
}

/// Waits for earlier tests, and makes the first card's context current.
pub(crate) fn gpu(test_file: &str) -> MutexGuard<'static, Gpu> {
    static GPU: OnceLock<Mutex<Gpu>> = OnceLock::new();
    let gpu = GPU.get_or_init(|| Mutex::new(open(test_file))).lock().unwrap_or_else(PoisonError::into_inner);
    gpu.make_current();
    gpu
}

fn open(test_file: &str) -> Gpu {
    let stage =
        Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("cuda").join(test_file)).with_machine(MACHINE);
    // SAFETY: every test of the file goes through `gpu` first and waits there, so no thread reads the environment.
    let software = unsafe { SoftwareGpu::load(&stage) };
    let driver = Driver::open(software.path().to_str().unwrap()).unwrap();
    let driver: &'static Driver = Box::leak(Box::new(driver));
    let context = driver.device(0).unwrap().retain_primary().unwrap();
    Gpu { driver, software, context }
}

impl Gpu {
    /// Makes the first card's context current.
    pub(crate) fn make_current(&self) {
        self.context.make_current().unwrap();
    }

    /// The same driver with only some of its functions.
    pub(crate) fn resolve(&self, is_there: impl Fn(&CStr) -> bool) -> &'static Driver {
        let find = |name: &CStr| self.symbol(name).filter(|_| is_there(name));
        // SAFETY: the functions are the driver's, which is never unloaded.
        Box::leak(Box::new(unsafe { Driver::resolve(find) }.unwrap()))
    }
}
