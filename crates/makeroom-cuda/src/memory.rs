//! Device memory: by the call that waits for the device, or in the order of a stream.

use makeroom_core::{Address, Bytes};

use crate::driver::Driver;
use crate::error::Result;
use crate::pool::MemoryPool;
use crate::region::Region;
use crate::stream::Stream;

/// Device memory, freed when dropped. Forgetting it ([`std::mem::forget`]) leaves it to the end of its context.
#[derive(Debug)]
pub struct DeviceMemory {
    driver: &'static Driver,
    address: Address,
    bytes: Bytes,
}

impl DeviceMemory {
    /// Allocates on the current device.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks are to name who asks, not who passes it on")]
    pub fn allocate(driver: &'static Driver, bytes: Bytes) -> Result<Self> {
        let mut address = 0;
        // SAFETY: the result has a place.
        unsafe { driver.allocate(&raw mut address, bytes.get() as usize) }
            .map_err(|error| driver.explain(error, bytes))?;
        Ok(Self { driver, address: Address(address), bytes })
    }

    /// Allocates in the order of a stream, from the device's current pool.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks are to name who asks, not who passes it on")]
    pub fn allocate_on(stream: &Stream, bytes: Bytes) -> Result<Self> {
        let driver = stream.driver();
        let mut address = 0;
        // SAFETY: the result has a place, and the stream is live.
        unsafe { driver.allocate_async(&raw mut address, bytes.get() as usize, stream.handle()) }
            .map_err(|error| driver.explain(error, bytes))?;
        Ok(Self { driver, address: Address(address), bytes })
    }

    /// Allocates in the order of a stream, from a pool.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks are to name who asks, not who passes it on")]
    pub fn allocate_from(pool: &MemoryPool, stream: &Stream, bytes: Bytes) -> Result<Self> {
        let driver = stream.driver();
        let mut address = 0;
        let (size, pool, stream) = (bytes.get() as usize, pool.handle(), stream.handle());
        // SAFETY: the result has a place; pool and stream are live.
        unsafe { driver.allocate_from_pool(&raw mut address, size, pool, stream) }
            .map_err(|error| driver.explain(error, bytes))?;
        Ok(Self { driver, address: Address(address), bytes })
    }

    /// Takes memory over that was given up with [`DeviceMemory::into_address`].
    ///
    /// # Safety
    ///
    /// The memory is live, of that size, and nobody else frees it.
    pub unsafe fn from_address(driver: &'static Driver, address: Address, bytes: Bytes) -> Self {
        Self { driver, address, bytes }
    }

    /// Where it is.
    pub fn address(&self) -> Address {
        self.address
    }

    /// How much it is.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// All of it, to be copied and filled.
    pub fn region(&self) -> Region<'_> {
        Region::new(self.driver, self.address, self.bytes)
    }

    /// Frees it. For memory that was not allocated on a stream this waits for the device.
    #[inline]
    pub fn free(self) -> Result<()> {
        let (driver, bytes) = (self.driver, self.bytes);
        let address = self.into_address();
        // SAFETY: the memory was this value's alone.
        unsafe { driver.free(address.0) }.map_err(|error| error.about(bytes))
    }

    /// Frees it once the stream has done what it has to do now.
    #[inline]
    pub fn free_on(self, stream: &Stream) -> Result<()> {
        let (driver, bytes) = (self.driver, self.bytes);
        let address = self.into_address();
        // SAFETY: the memory was this value's alone, and the stream is live.
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
        // SAFETY: the memory is this value's alone. At the end of the process the driver is gone before it is.
        let _ = unsafe { self.driver.free(self.address.0) };
    }
}
