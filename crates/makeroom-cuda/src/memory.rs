//! Device memory: allocated synchronously or in stream order.

use makeroom_core::{Address, Bytes};

use crate::driver::Driver;
use crate::error::Result;
use crate::pool::MemoryPool;
use crate::region::Region;
use crate::stream::Stream;

/// Device memory, freed on drop. Forgotten ([`std::mem::forget`]) memory lives until its context ends.
#[derive(Debug)]
pub struct DeviceMemory {
    driver: &'static Driver,
    address: Address,
    bytes: Bytes,
}

impl DeviceMemory {
    /// Allocates on the current device.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks must show the caller, not this function")]
    pub fn allocate(driver: &'static Driver, bytes: Bytes) -> Result<Self> {
        let mut address = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { driver.allocate(&raw mut address, bytes.get() as usize) }
            .map_err(|error| driver.explain(error, bytes))?;
        Ok(Self { driver, address: Address(address), bytes })
    }

    /// Allocates in stream order, from the device's current pool.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks must show the caller, not this function")]
    pub fn allocate_on(stream: &Stream, bytes: Bytes) -> Result<Self> {
        let driver = stream.driver();
        let mut address = 0;
        // SAFETY: the out-parameter is valid, and the stream is live.
        unsafe { driver.allocate_async(&raw mut address, bytes.get() as usize, stream.handle()) }
            .map_err(|error| driver.explain(error, bytes))?;
        Ok(Self { driver, address: Address(address), bytes })
    }

    /// Allocates in stream order, from a pool.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks must show the caller, not this function")]
    pub fn allocate_from(pool: &MemoryPool, stream: &Stream, bytes: Bytes) -> Result<Self> {
        let driver = stream.driver();
        let mut address = 0;
        let (size, pool, stream) = (bytes.get() as usize, pool.handle(), stream.handle());
        // SAFETY: the out-parameter is valid; pool and stream are live.
        unsafe { driver.allocate_from_pool(&raw mut address, size, pool, stream) }
            .map_err(|error| driver.explain(error, bytes))?;
        Ok(Self { driver, address: Address(address), bytes })
    }

    /// Takes over memory given up with [`DeviceMemory::into_address`].
    ///
    /// # Safety
    ///
    /// The memory is live and has this size, and nothing else frees it.
    pub unsafe fn from_address(driver: &'static Driver, address: Address, bytes: Bytes) -> Self {
        Self { driver, address, bytes }
    }

    /// Its address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Its size.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// All of it, for copies and fills.
    pub fn region(&self) -> Region<'_> {
        Region::new(self.driver, self.address, self.bytes)
    }

    /// Frees it. For memory that was not allocated on a stream, this waits for the device.
    #[inline]
    pub fn free(self) -> Result<()> {
        let (driver, bytes) = (self.driver, self.bytes);
        let address = self.into_address();
        // SAFETY: this value owned the memory exclusively.
        unsafe { driver.free(address.0) }.map_err(|error| error.about(bytes))
    }

    /// Frees it after the stream's current work.
    #[inline]
    pub fn free_on(self, stream: &Stream) -> Result<()> {
        let (driver, bytes) = (self.driver, self.bytes);
        let address = self.into_address();
        // SAFETY: this value owned the memory exclusively, and the stream is live.
        unsafe { driver.free_async(address.0, stream.handle()) }.map_err(|error| error.about(bytes))
    }

    /// Gives up the memory without freeing it.
    pub fn into_address(self) -> Address {
        let address = self.address;
        std::mem::forget(self);
        address
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: this value owns the memory exclusively. At process exit the driver is gone before it and returns an
        // error.
        let _ = unsafe { self.driver.free(self.address.0) };
    }
}
