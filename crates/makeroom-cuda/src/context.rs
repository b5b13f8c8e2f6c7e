//! Contexts: the memory and streams that a thread's calls refer to.

use makeroom_core::Bytes;

use crate::driver::Driver;
use crate::error::Result;

/// A context. It lives until [`Context::end`] or process exit.
#[derive(Debug)]
pub struct Context {
    driver: &'static Driver,
    handle: u64,
    ends: Ends,
}

/// How a context is released.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// By releasing the device's primary context.
    Release(i32),
    /// By destroying it.
    Destroy,
}

/// A device's memory, as the driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free memory.
    pub free: Bytes,
    /// Total memory, without what the driver reserves for itself.
    pub total: Bytes,
}

/// A context's limits; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Limit {
    /// Stack bytes per thread.
    Stack = 0,
    /// Bytes of the buffer for `printf` in kernels.
    Printf = 1,
    /// Bytes of the heap for `malloc` in kernels.
    Heap = 2,
}

impl Context {
    pub(crate) fn primary(driver: &'static Driver, handle: u64, device: i32) -> Self {
        Self { driver, handle, ends: Ends::Release(device) }
    }

    pub(crate) fn created(driver: &'static Driver, handle: u64) -> Self {
        Self { driver, handle, ends: Ends::Destroy }
    }

    /// The driver's handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Makes it current on this thread.
    pub fn make_current(&self) -> Result<()> {
        // SAFETY: the context is live: only `end` ends it.
        unsafe { self.driver.context_set(self.handle) }
    }

    /// Makes it current until the result is dropped, which restores the previous one.
    pub fn enter(&self) -> Result<CurrentContext<'_>> {
        // SAFETY: as above.
        unsafe { self.driver.context_push(self.handle) }?;
        Ok(CurrentContext { context: self, is_popped: false })
    }

    /// Ends the context: a primary one is released, others are destroyed.
    ///
    /// # Safety
    ///
    /// If this was the last reference, nothing created in it is used or dropped afterwards.
    pub unsafe fn end(self) -> Result<()> {
        match self.ends {
            // SAFETY: guaranteed by the caller.
            Ends::Release(device) => unsafe { self.driver.primary_release(device) },
            // SAFETY: as above.
            Ends::Destroy => unsafe { self.driver.context_destroy(self.handle) },
        }
    }
}

/// A context that is current temporarily.
#[derive(Debug)]
#[must_use = "the context is current until this is dropped"]
pub struct CurrentContext<'context> {
    context: &'context Context,
    is_popped: bool,
}

impl CurrentContext<'_> {
    /// Leaves the context and returns the result.
    pub fn leave(mut self) -> Result<()> {
        self.pop()
    }

    fn pop(&mut self) -> Result<()> {
        self.is_popped = true;
        let mut popped = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.context.driver.context_pop(&raw mut popped) }
    }
}

impl Drop for CurrentContext<'_> {
    fn drop(&mut self) {
        if !self.is_popped {
            // If other code emptied this thread's context stack, there is none to leave.
            let _ = self.pop();
        }
    }
}

/// Functions on the current context of the calling thread.
impl Driver {
    /// The current context's handle; `None` if there is none.
    pub fn current_context(&self) -> Result<Option<u64>> {
        let mut context = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.context_get(&raw mut context) }?;
        Ok((context != 0).then_some(context))
    }

    /// The current context's device.
    pub fn current_device(&self) -> Result<i32> {
        let mut device = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.context_device(&raw mut device) }?;
        Ok(device)
    }

    /// Free and total memory of the current device.
    pub fn memory(&self) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both out-parameters are valid.
        unsafe { self.memory_info(&raw mut free, &raw mut total) }?;
        Ok(MemoryInfo { free: Bytes::new(free as u64), total: Bytes::new(total as u64) })
    }

    /// Waits for all work in the current context.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: no pointers.
        unsafe { self.context_synchronize() }
    }

    /// A limit of the current context.
    pub fn limit(&self, limit: Limit) -> Result<Bytes> {
        let mut value = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { self.limit_get(&raw mut value, limit as u32) }?;
        Ok(Bytes::new(value as u64))
    }

    /// Changes a limit of the current context; the driver may round it up.
    pub fn set_limit(&self, limit: Limit, value: Bytes) -> Result<()> {
        // SAFETY: no pointers.
        unsafe { self.limit_set(limit as u32, value.get() as usize) }.map_err(|error| error.about(value))
    }
}
