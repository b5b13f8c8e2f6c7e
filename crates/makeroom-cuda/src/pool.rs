//! The driver's own pools of stream-ordered memory.

use std::ffi::c_void;

use makeroom_core::Bytes;

use crate::abi::{Location, PoolProperties};
use crate::driver::Driver;
use crate::error::Result;

/// A driver pool. A created one is destroyed on drop; memory allocated from it lives on.
#[derive(Debug)]
pub struct MemoryPool {
    driver: &'static Driver,
    handle: u64,
    is_owned: bool,
}

/// Attributes of a pool; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PoolAttribute {
    /// Whether memory freed on another stream is reused if events order the two.
    FollowEvents = 1,
    /// Whether it is reused if the other stream happens to be done.
    Opportunistic = 2,
    /// Whether streams are made to wait so that it can be reused.
    InternalDependencies = 3,
    /// How much unused memory is kept when a stream is synchronized.
    ReleaseThreshold = 4,
    /// Device memory reserved by the pool.
    Reserved = 5,
    /// Peak of that.
    ReservedHigh = 6,
    /// Reserved memory in use.
    Used = 7,
    /// Peak of that.
    UsedHigh = 8,
}

impl PoolAttribute {
    /// Whether its value has 32 bits instead of 64.
    fn is_switch(self) -> bool {
        matches!(self, Self::FollowEvents | Self::Opportunistic | Self::InternalDependencies)
    }
}

/// Statistics of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFigures {
    /// Device memory reserved by the pool.
    pub reserved: Bytes,
    /// Peak of `reserved`.
    pub reserved_high: Bytes,
    /// Reserved memory in use.
    pub used: Bytes,
    /// Peak of `used`.
    pub used_high: Bytes,
}

impl MemoryPool {
    pub(crate) fn of_device(driver: &'static Driver, handle: u64) -> Self {
        Self { driver, handle, is_owned: false }
    }

    /// Creates a pool on a device.
    pub fn create(driver: &'static Driver, location: Location) -> Result<Self> {
        let properties = PoolProperties::on(location);
        let mut handle = 0;
        // SAFETY: the out-parameter is valid, and the properties outlive the call.
        unsafe { driver.pool_create(&raw mut handle, &raw const properties) }?;
        Ok(Self { driver, handle, is_owned: true })
    }

    /// The driver's handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Reads an attribute; a switch is 0 or 1.
    pub fn attribute(&self, attribute: PoolAttribute) -> Result<u64> {
        // For a switch the driver writes four bytes: on the little-endian machines that CUDA supports, the low half.
        let mut value: u64 = 0;
        let place: *mut c_void = (&raw mut value).cast();
        // SAFETY: the pool is live, and the out-parameter is large enough.
        unsafe { self.driver.pool_get(self.handle, attribute as u32, place) }?;
        Ok(value)
    }

    /// Changes an attribute. The peaks can only be set to 0, which resets them.
    pub fn set_attribute(&self, attribute: PoolAttribute, value: u64) -> Result<()> {
        let mut number = value;
        let mut switch = i32::from(value != 0);
        let place: *mut c_void =
            if attribute.is_switch() { (&raw mut switch).cast() } else { (&raw mut number).cast() };
        // SAFETY: the pool is live, and the value has the attribute's size.
        unsafe { self.driver.pool_set(self.handle, attribute as u32, place) }
    }

    /// Reserved and used memory.
    pub fn figures(&self) -> Result<PoolFigures> {
        Ok(PoolFigures {
            reserved: Bytes::new(self.attribute(PoolAttribute::Reserved)?),
            reserved_high: Bytes::new(self.attribute(PoolAttribute::ReservedHigh)?),
            used: Bytes::new(self.attribute(PoolAttribute::Used)?),
            used_high: Bytes::new(self.attribute(PoolAttribute::UsedHigh)?),
        })
    }

    /// Releases unused memory to the device, down to `keep`.
    pub fn trim_to(&self, keep: Bytes) -> Result<()> {
        // SAFETY: the pool is live.
        unsafe { self.driver.pool_trim(self.handle, keep.get() as usize) }.map_err(|error| error.about(keep))
    }

    /// Destroys it and returns the result.
    pub fn destroy(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_owned) {
            return Ok(());
        }
        // SAFETY: created here, and not destroyed before.
        unsafe { self.driver.pool_destroy(self.handle) }
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        // At process exit, and in a forked child, the driver is gone before the pool.
        let _ = self.end();
    }
}
