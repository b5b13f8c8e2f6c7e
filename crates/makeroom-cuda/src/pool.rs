//! The driver's own pools of stream-ordered memory.

use std::ffi::c_void;

use makeroom_core::Bytes;

use crate::abi::{Location, PoolProperties};
use crate::driver::Driver;
use crate::error::Result;

/// A pool of the driver's. One that was created is destroyed when dropped; what came from it lives on.
#[derive(Debug)]
pub struct MemoryPool {
    driver: &'static Driver,
    handle: u64,
    is_owned: bool,
}

/// What a pool does or has; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PoolAttribute {
    /// Whether memory freed on another stream is used again where events order the two.
    FollowEvents = 1,
    /// Whether it is used again where the other stream happens to be done.
    Opportunistic = 2,
    /// Whether streams are made to wait so that it can be used again.
    InternalDependencies = 3,
    /// How much unused memory is kept when a stream is waited for.
    ReleaseThreshold = 4,
    /// What the pool has of the device.
    Reserved = 5,
    /// The most it ever had.
    ReservedHigh = 6,
    /// What is in use of that.
    Used = 7,
    /// The most that ever was.
    UsedHigh = 8,
}

impl PoolAttribute {
    /// Whether its value has 32 bits instead of 64.
    fn is_switch(self) -> bool {
        matches!(self, Self::FollowEvents | Self::Opportunistic | Self::InternalDependencies)
    }
}

/// What a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFigures {
    /// What it has of the device.
    pub reserved: Bytes,
    /// The most it ever had.
    pub reserved_high: Bytes,
    /// What is in use of that.
    pub used: Bytes,
    /// The most that ever was.
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
        // SAFETY: the result has a place, and the properties stand still.
        unsafe { driver.pool_create(&raw mut handle, &raw const properties) }?;
        Ok(Self { driver, handle, is_owned: true })
    }

    /// The driver's handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Reads an attribute; a switch is 0 or 1.
    pub fn attribute(&self, attribute: PoolAttribute) -> Result<u64> {
        // The driver writes four bytes for a switch: on the machines that CUDA runs on they are the first of these.
        let mut value: u64 = 0;
        let place: *mut c_void = (&raw mut value).cast();
        // SAFETY: the pool is live, and the result has a place of at least its size.
        unsafe { self.driver.pool_get(self.handle, attribute as u32, place) }?;
        Ok(value)
    }

    /// Changes an attribute. The high figures can only be set to 0, which starts them anew.
    pub fn set_attribute(&self, attribute: PoolAttribute, value: u64) -> Result<()> {
        let mut number = value;
        let mut switch = i32::from(value != 0);
        let place: *mut c_void =
            if attribute.is_switch() { (&raw mut switch).cast() } else { (&raw mut number).cast() };
        // SAFETY: the pool is live, and the value stands in a place of its size.
        unsafe { self.driver.pool_set(self.handle, attribute as u32, place) }
    }

    /// What it has and what is in use.
    pub fn figures(&self) -> Result<PoolFigures> {
        Ok(PoolFigures {
            reserved: Bytes::new(self.attribute(PoolAttribute::Reserved)?),
            reserved_high: Bytes::new(self.attribute(PoolAttribute::ReservedHigh)?),
            used: Bytes::new(self.attribute(PoolAttribute::Used)?),
            used_high: Bytes::new(self.attribute(PoolAttribute::UsedHigh)?),
        })
    }

    /// Gives unused memory back to the device, down to so much.
    pub fn trim_to(&self, keep: Bytes) -> Result<()> {
        // SAFETY: the pool is live.
        unsafe { self.driver.pool_trim(self.handle, keep.get() as usize) }.map_err(|error| error.about(keep))
    }

    /// Destroys it and says how that went.
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
        // At the end of the process, and in a forked child, the driver is gone before the pool is.
        let _ = self.end();
    }
}
