//! Finds the driver: loads it, or takes functions that were already looked up.

use std::ffi::{CStr, c_void};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::raw::Functions;

/// The library name of NVIDIA's driver.
const LIBRARY: &str = "libcuda.so.1";

/// The driver's functions. All wrappers refer to it, so it is `'static`.
#[derive(Debug)]
pub struct Driver {
    functions: Functions,
}

impl Driver {
    /// Loads and initializes the driver, once; it stays loaded.
    pub fn load() -> Result<&'static Self> {
        static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
        let loaded = DRIVER.get_or_init(|| Self::open(LIBRARY));
        loaded.as_ref().map_err(Clone::clone)
    }

    /// Loads and initializes the driver at a path. It stays loaded even if the result is dropped.
    pub fn open(path: &str) -> Result<Self> {
        let not_loaded = |error: libloading::Error| Error::NotLoaded { reason: reason(&error) };
        // SAFETY: a driver's initializers may run at any time: that is how every CUDA program starts.
        let library = unsafe { libloading::Library::new(path) }.map_err(not_loaded)?;
        let find = |name: &CStr| {
            // SAFETY: only the address is taken here.
            let symbol = unsafe { library.get::<*mut c_void>(name) }.ok()?;
            NonNull::new(*symbol)
        };
        // SAFETY: the names are the driver's, and the library is never unloaded, see below.
        let driver = unsafe { Self::resolve(find) };
        // The driver's threads and exit handlers outlive every use of it.
        std::mem::forget(library);
        let driver = driver?;
        driver.start()?;
        Ok(driver)
    }

    /// A driver from functions that the caller looks up; it is not initialized.
    ///
    /// # Safety
    ///
    /// `find` returns the address of the driver's function with that name, which stays valid.
    pub unsafe fn resolve(find: impl FnMut(&CStr) -> Option<NonNull<c_void>>) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        let functions = unsafe { Functions::resolve(find) };
        if functions.is_driver() {
            Ok(Self { functions })
        } else {
            Err(Error::Missing { function: "cuInit" })
        }
    }

    /// Initializes the driver; further calls have no effect.
    pub fn start(&self) -> Result<()> {
        // SAFETY: no pointers.
        unsafe { self.init(0) }
    }

    /// The CUDA version that the driver supports: 12040 for 12.4.
    pub fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.driver_version(&raw mut version) }?;
        Ok(version)
    }

    /// Number of devices.
    pub fn devices(&self) -> Result<i32> {
        let mut count = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.device_count(&raw mut count) }?;
        Ok(count)
    }

    /// A device by its ordinal.
    pub fn device(&'static self, ordinal: i32) -> Result<Device> {
        let mut number = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.device_get(&raw mut number, ordinal) }?;
        Ok(Device::new(self, number))
    }
}

/// Its functions, for calls without a wrapper and for addresses from elsewhere.
impl Deref for Driver {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

/// The dynamic linker's message, without the wrapping errors.
fn reason(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), reason)
}
