//! Finding the driver: by loading it, or from somebody who has its functions already.

use std::ffi::{CStr, c_void};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::raw::Functions;

/// The name under which NVIDIA's driver installs itself.
const LIBRARY: &str = "libcuda.so.1";

/// The driver's functions. What is made through it refers to it, so there is one and it stays.
#[derive(Debug)]
pub struct Driver {
    functions: Functions,
}

impl Driver {
    /// Loads and starts the driver, once; it stays loaded.
    pub fn load() -> Result<&'static Self> {
        static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
        let loaded = DRIVER.get_or_init(|| Self::open(LIBRARY));
        loaded.as_ref().map_err(Clone::clone)
    }

    /// Loads and starts the driver at a path. It stays loaded whatever becomes of the result.
    pub fn open(path: &str) -> Result<Self> {
        let not_loaded = |error: libloading::Error| Error::NotLoaded { reason: reason(&error) };
        // SAFETY: a driver's initialisers may run at any time: that is how every CUDA program starts.
        let library = unsafe { libloading::Library::new(path) }.map_err(not_loaded)?;
        let find = |name: &CStr| {
            // SAFETY: only the address is taken here.
            let symbol = unsafe { library.get::<*mut c_void>(name) }.ok()?;
            NonNull::new(*symbol)
        };
        // SAFETY: the names are the driver's, and the library is never unloaded, see below.
        let driver = unsafe { Self::resolve(find) };
        // The driver's threads and handlers for the end of the process outlive every use of it.
        std::mem::forget(library);
        let driver = driver?;
        driver.start()?;
        Ok(driver)
    }

    /// A driver out of functions that somebody else found; it is not started.
    ///
    /// # Safety
    ///
    /// What `find` answers is the address of the driver's function of that name, and stays there.
    pub unsafe fn resolve(find: impl FnMut(&CStr) -> Option<NonNull<c_void>>) -> Result<Self> {
        // SAFETY: passed on to the caller.
        let functions = unsafe { Functions::resolve(find) };
        if functions.is_driver() {
            Ok(Self { functions })
        } else {
            Err(Error::Missing { function: "cuInit" })
        }
    }

    /// Starts the driver; doing it again changes nothing.
    pub fn start(&self) -> Result<()> {
        // SAFETY: no pointers.
        unsafe { self.init(0) }
    }

    /// The version of CUDA that the driver serves: 12040 for 12.4.
    pub fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: the result has a place.
        unsafe { self.driver_version(&raw mut version) }?;
        Ok(version)
    }

    /// How many devices there are.
    pub fn devices(&self) -> Result<i32> {
        let mut count = 0;
        // SAFETY: the result has a place.
        unsafe { self.device_count(&raw mut count) }?;
        Ok(count)
    }

    /// A device by its ordinal.
    pub fn device(&'static self, ordinal: i32) -> Result<Device> {
        let mut number = 0;
        // SAFETY: the result has a place.
        unsafe { self.device_get(&raw mut number, ordinal) }?;
        Ok(Device::new(self, number))
    }
}

/// Its functions, for what has no wrapper and for addresses that come from elsewhere.
impl Deref for Driver {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

/// What the dynamic linker said, without the layers around it.
fn reason(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), reason)
}
