//! Finds, initializes and shuts down NVML.
//!
//! Unlike the CUDA driver, NVML is unloaded when its [`Library`] is dropped: after a driver update, the next one loads the
//! new file. Devices borrow the library, so no function is called after that.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::ptr::NonNull;

use crate::abi::DRIVER_VERSION_SIZE;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::raw::Functions;

/// Maximum number of GPUs; a larger count is an error.
const MOST_DEVICES: u32 = 1024;

/// The initialized library.
#[derive(Debug)]
pub struct Library {
    pub(crate) functions: Functions,
    /// Whether its `_v3` process lists have the longer entries of drivers 535.43 to 535.86.
    pub(crate) has_long_entries: bool,
    /// Unloaded after `drop` has shut NVML down.
    _file: libloading::Library,
}

impl Library {
    /// Loads and initializes the library at this path, or with this name on the dynamic linker's search path.
    pub fn open(path: impl AsRef<OsStr>) -> Result<Self> {
        let not_loaded = |error: libloading::Error| Error::NotLoaded { reason: reason(&error) };
        // SAFETY: NVML's initializers may run at any time, as they do when a program that links it starts.
        let file = unsafe { libloading::Library::new(path.as_ref()) }.map_err(not_loaded)?;
        let find = |name: &CStr| {
            // SAFETY: only the address is taken here.
            let symbol = unsafe { file.get::<*mut c_void>(name) }.ok()?;
            NonNull::new(*symbol)
        };
        // SAFETY: the names are NVML's, and the functions are kept together with the file.
        let functions = unsafe { Functions::resolve(find) };
        Self::start(functions, file)
    }

    /// Initializes a library. If that fails, the file is unloaded.
    pub(crate) fn start(functions: Functions, file: libloading::Library) -> Result<Self> {
        // SAFETY: the function takes no pointers.
        unsafe { functions.init() }?;
        let mut library = Self { functions, has_long_entries: false, _file: file };
        library.has_long_entries = library.driver_version().is_ok_and(|version| has_long_entries(&version));
        Ok(library)
    }

    /// The driver's version, such as `580.159.03`.
    pub fn driver_version(&self) -> Result<String> {
        read_text::<DRIVER_VERSION_SIZE>(|text, length| {
            // SAFETY: the buffer has the stated length.
            unsafe { self.functions.driver_version(text, length) }
        })
    }

    /// The newest CUDA version that the driver supports, such as 12040 for 12.4.
    pub fn cuda_version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.functions.cuda_version(&raw mut version) }?;
        Ok(version)
    }

    /// Number of GPUs, including those that this user may not query.
    pub fn device_count(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.functions.device_count(&raw mut count) }?;
        bounded("GPUs", count, MOST_DEVICES)
    }

    /// A GPU by its index.
    pub fn device(&self, index: u32) -> Result<Device<'_>> {
        let mut handle = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.functions.device_by_index(index, &raw mut handle) }?;
        Ok(Device::new(self, handle))
    }
}

/// Shuts NVML down and ignores errors.
impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the function takes no pointers, and no device outlives the library.
        let _ = unsafe { self.functions.shutdown() };
    }
}

/// Returns a count, or an error if it is above a limit.
pub(crate) fn bounded(what: &'static str, count: u32, limit: u32) -> Result<u32> {
    if count > limit { Err(Error::TooMany { what, count, limit }) } else { Ok(count) }
}

/// The string that a function writes into a buffer of `SIZE` bytes.
pub(crate) fn read_text<const SIZE: usize>(
    write: impl FnOnce(*mut c_char, u32) -> Result<()>,
) -> Result<String> {
    let mut buffer = [0_u8; SIZE];
    write(buffer.as_mut_ptr().cast(), SIZE as u32)?;
    text_of(&buffer)
}

/// The string in a buffer, up to the first NUL or the end.
pub(crate) fn text_of(buffer: &[u8]) -> Result<String> {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    str::from_utf8(&buffer[..end]).map(str::to_owned).map_err(|_| Error::NotUtf8)
}

/// Whether a driver is one of 535.43 to 535.86. The entries of their `_v3` functions have an additional field, and the
/// functions were not renamed when it was added and removed.
fn has_long_entries(driver_version: &str) -> bool {
    let mut numbers = driver_version.split('.').map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return false };
    major == 535_u32 && (43_u32..=86).contains(&minor)
}

/// The dynamic linker's message, without the errors that wrap it.
fn reason(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), reason)
}
