//! Code for the device: loaded as an image, its functions found and started.

use std::ffi::{CStr, c_void};

use crate::driver::Driver;
use crate::error::Result;
use crate::stream::Stream;

/// Loaded code, unloaded when dropped.
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

/// How a kernel is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in each direction.
    pub grid: [u32; 3],
    /// Threads of a block in each direction.
    pub block: [u32; 3],
    /// Bytes of shared memory that a block gets beyond what the kernel declares.
    pub shared_bytes: u32,
}

impl Module {
    /// Loads PTX, as text, into the current context.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks are to name who asks, not who passes it on")]
    pub fn load_text(driver: &'static Driver, text: &CStr) -> Result<Self> {
        // SAFETY: a text that ends in a zero byte is an image.
        unsafe { Self::load(driver, text.as_ptr().cast()) }
    }

    /// Loads an image into the current context: PTX that ends in a zero byte, a cubin or a fat binary.
    ///
    /// # Safety
    ///
    /// The image is whole: the driver reads as far as it says itself.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks are to name who asks, not who passes it on")]
    pub unsafe fn load(driver: &'static Driver, image: *const c_void) -> Result<Self> {
        let mut handle = 0;
        // SAFETY: the result has a place; the caller vouches for the image.
        unsafe { driver.module_load(&raw mut handle, image) }?;
        Ok(Self { driver, handle })
    }

    /// A kernel by its name.
    pub fn function(&self, name: &CStr) -> Result<Function<'_>> {
        let mut handle = 0;
        // SAFETY: the result has a place, the module is live, and the name ends in a zero byte.
        unsafe { self.driver.module_function(&raw mut handle, self.handle, name.as_ptr()) }?;
        Ok(Function { module: self, handle })
    }

    /// Unloads it and says how that went.
    pub fn unload(self) -> Result<()> {
        let (driver, handle) = (self.driver, self.handle);
        std::mem::forget(self);
        // SAFETY: the module was this value's alone, and no function borrows it any more.
        unsafe { driver.module_unload(handle) }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the module is this value's alone. At the end of the process the driver is gone before it is.
        let _ = unsafe { self.driver.module_unload(self.handle) };
    }
}

impl Function<'_> {
    /// Starts the kernel on a stream.
    ///
    /// # Safety
    ///
    /// `parameters` are pointers to what the kernel takes, in its order and of its types, and what the kernel does
    /// with them is right.
    pub unsafe fn launch(
        self,
        launch: Launch,
        stream: &Stream,
        parameters: &mut [*mut c_void],
    ) -> Result<()> {
        let Launch { grid, block, shared_bytes } = launch;
        // SAFETY: function and stream are live; the caller vouches for the parameters.
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
