//! Pinned host memory: allocated by the driver, or the program's own, registered.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use makeroom_core::{Address, Bytes};

use crate::driver::Driver;
use crate::error::{Code, Error, Refusal, Result};

/// How pinned memory can be used; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PinnedKind {
    /// In the context that allocated it.
    Plain = 0,
    /// In every context.
    Portable = 1,
    /// In every context, and by kernels.
    Mapped = 3,
    /// In every context, write-combined: reading it on the host is slow.
    WriteCombined = 5,
}

/// Pinned memory, freed on drop. It is zeroed when allocated, so it can be read at once.
#[derive(Debug)]
pub struct PinnedMemory {
    driver: &'static Driver,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the value owns its memory exclusively, and the driver lets any thread with a context free it.
unsafe impl Send for PinnedMemory {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates pinned memory in the current context.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks must show the caller, not this function")]
    pub fn allocate(driver: &'static Driver, bytes: Bytes, kind: PinnedKind) -> Result<Self> {
        let size = bytes.get() as usize;
        let mut address = std::ptr::null_mut();
        // SAFETY: the out-parameter is valid.
        unsafe { driver.host_allocate(&raw mut address, size, kind as u32) }
            .map_err(|error| error.about(bytes))?;
        let Some(start) = NonNull::new(address.cast::<u8>()) else {
            return Err(Error::Refused(Refusal {
                function: "cuMemHostAlloc",
                code: Code::SUCCESS,
                name: Some("without an address"),
                requested: Some(bytes),
                free: None,
                total: None,
            }));
        };
        // SAFETY: the driver returned `size` bytes at this address, and nothing else refers to them.
        unsafe { start.write_bytes(0, size) };
        Ok(Self { driver, start, bytes: size })
    }

    /// Its address for kernels.
    pub fn device_address(&self) -> Result<Address> {
        let mut address = 0;
        // SAFETY: the out-parameter is valid, and the memory is live.
        unsafe { self.driver.host_device_address(&raw mut address, self.start.as_ptr().cast(), 0) }?;
        Ok(Address(address))
    }

    /// Frees it and returns the result. Copies that use it must be done.
    pub fn free(self) -> Result<()> {
        let (driver, start, bytes) = (self.driver, self.start, self.bytes);
        std::mem::forget(self);
        // SAFETY: this value owned the memory exclusively.
        unsafe { driver.host_free(start.as_ptr().cast()) }
            .map_err(|error| error.about(Bytes::new(bytes as u64)))
    }
}

impl Deref for PinnedMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this value owns `bytes` bytes exclusively, initialized when they were allocated.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for PinnedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: this value owns the memory exclusively. At process exit the driver is gone before it and returns an
        // error.
        let _ = unsafe { self.driver.host_free(self.start.as_ptr().cast()) };
    }
}

/// The program's own memory, pinned until drop.
#[derive(Debug)]
pub struct RegisteredMemory<'memory> {
    driver: &'static Driver,
    memory: &'memory mut [u8],
}

impl<'memory> RegisteredMemory<'memory> {
    /// Pins memory.
    pub fn register(driver: &'static Driver, memory: &'memory mut [u8], kind: PinnedKind) -> Result<Self> {
        // Write-combining is chosen at allocation; as a registration flag that number has another meaning.
        let flags = if kind == PinnedKind::WriteCombined { PinnedKind::Portable as u32 } else { kind as u32 };
        let start: *mut c_void = memory.as_mut_ptr().cast();
        // SAFETY: the memory is borrowed until this value is dropped, which unpins it.
        unsafe { driver.host_register(start, memory.len(), flags) }
            .map_err(|error| error.about(Bytes::new(memory.len() as u64)))?;
        Ok(Self { driver, memory })
    }

    /// Unpins it and returns the result.
    pub fn unregister(self) -> Result<()> {
        let mut this = std::mem::ManuallyDrop::new(self);
        // SAFETY: registered by this value, and not unregistered before.
        unsafe { this.driver.host_unregister(this.memory.as_mut_ptr().cast()) }
            .map_err(|error| error.about(Bytes::new(this.memory.len() as u64)))
    }
}

impl Deref for RegisteredMemory<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory
    }
}

impl DerefMut for RegisteredMemory<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory
    }
}

impl Drop for RegisteredMemory<'_> {
    fn drop(&mut self) {
        // SAFETY: registered by this value. At process exit the driver is gone before it and returns an error.
        let _ = unsafe { self.driver.host_unregister(self.memory.as_mut_ptr().cast()) };
    }
}
