//! Device code: loads an image, looks up its kernels and launches them.

use std::ffi::{CStr, c_void};

use crate::driver::Driver;
use crate::error::Result;
use crate::stream::Stream;

/// A loaded module, unloaded on drop.
#[derive(Debug)]
pub struct Module {
    driver: &'static Driver,
    handle: u64,
}

/// A kernel of a module.
#[derive(Clone, Copy, Debug)]
pub struct Function<'module> {
    module: &'module Module,
    handle: u64,
}

/// Launch configuration of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads per block in each dimension.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
}

impl Module {
    /// Loads PTX text into the current context.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks must show the caller, not this function")]
    pub fn load_text(driver: &'static Driver, text: &CStr) -> Result<Self> {
        // SAFETY: NUL-terminated text is an image.
        unsafe { Self::load(driver, text.as_ptr().cast()) }
    }

    /// Loads an image into the current context: NUL-terminated PTX, a cubin or a fat binary.
    ///
    /// # Safety
    ///
    /// The image is complete: the driver reads as much as its header says.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks must show the caller, not this function")]
    pub unsafe fn load(driver: &'static Driver, image: *const c_void) -> Result<Self> {
        let mut handle = 0;
        // SAFETY: the out-parameter is valid; the caller guarantees the image.
        unsafe { driver.module_load(&raw mut handle, image) }?;
        Ok(Self { driver, handle })
    }

    /// A kernel by its name.
    pub fn function(&self, name: &CStr) -> Result<Function<'_>> {
        let mut handle = 0;
        // SAFETY: the out-parameter is valid, the module is live, and the name is NUL-terminated.
        unsafe { self.driver.module_function(&raw mut handle, self.handle, name.as_ptr()) }?;
        Ok(Function { module: self, handle })
    }

    /// Unloads it and returns the result.
    pub fn unload(self) -> Result<()> {
        let (driver, handle) = (self.driver, self.handle);
        std::mem::forget(self);
        // SAFETY: this value owned the module exclusively, and no function borrows it anymore.
        unsafe { driver.module_unload(handle) }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: this value owns the module exclusively. At process exit the driver is gone before it and returns an
        // error.
        let _ = unsafe { self.driver.module_unload(self.handle) };
    }
}

impl Function<'_> {
    /// Launches the kernel on a stream.
    ///
    /// # Safety
    ///
    /// `parameters` point to the kernel's arguments, in order and of the right types, and the kernel is sound for
    /// them.
    pub unsafe fn launch(
        self,
        launch: Launch,
        stream: &Stream,
        parameters: &mut [*mut c_void],
    ) -> Result<()> {
        let Launch { grid, block, shared_bytes } = launch;
        // SAFETY: function and stream are live; the caller guarantees the parameters.
        unsafe {
            self.module.driver.launch(
                self.handle,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                shared_bytes,
                stream.handle(),
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
    }
}
