//! The virtual memory API: reserve addresses, create physical memory, and map one to the other.
//!
//! A handle is mapped and unmapped as a whole. Unmapping does not wait for the GPU: the caller must know that the GPU
//! is done with the memory, or the GPU faults.

use std::mem::ManuallyDrop;

use makeroom_core::{Address, Bytes};

use crate::abi::{AccessDescription, AllocationProperties, Location};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::region::Region;

/// Kinds of granularity; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Granularity {
    /// The smallest possible.
    Minimum = 0,
    /// The one recommended for performance.
    Recommended = 1,
}

/// Access rights to memory; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Access {
    /// No access.
    None = 0,
    /// Read only.
    Read = 1,
    /// Read and write.
    ReadWrite = 3,
}

impl Driver {
    /// The granularity in which memory at a location is created and mapped.
    pub fn granularity_at(&self, location: Location, granularity: Granularity) -> Result<Bytes> {
        let wanted = AllocationProperties::pinned(location);
        let mut bytes = 0;
        // SAFETY: the out-parameter is valid, and the properties outlive the call.
        unsafe { self.granularity(&raw mut bytes, &raw const wanted, granularity as u32) }?;
        Ok(Bytes::new(bytes as u64))
    }
}

/// Physical memory without an address, released on drop. Mappings keep the memory alive.
#[derive(Debug)]
pub struct PhysicalMemory {
    driver: &'static Driver,
    handle: u64,
    bytes: Bytes,
}

impl PhysicalMemory {
    /// Creates memory at a location. The size must be a multiple of the granularity.
    pub fn create(driver: &'static Driver, location: Location, bytes: Bytes) -> Result<Self> {
        Self::create_with(driver, &AllocationProperties::pinned(location), bytes)
    }

    /// Creates memory with given properties. The size must be a multiple of the granularity.
    pub fn create_with(
        driver: &'static Driver,
        properties: &AllocationProperties,
        bytes: Bytes,
    ) -> Result<Self> {
        let mut handle = 0;
        // SAFETY: the out-parameter is valid, and the properties outlive the call.
        unsafe { driver.create(&raw mut handle, bytes.get() as usize, properties, 0) }
            .map_err(|error| driver.explain(error, bytes))?;
        Ok(Self { driver, handle, bytes })
    }

    /// The driver's handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Its size.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Releases it and returns the result. After a failure, dropping it retries once.
    pub fn release(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.handle == 0 {
            return Ok(());
        }
        // SAFETY: this value owns the handle exclusively, and it was not released before.
        unsafe { self.driver.release(self.handle) }.map_err(|error| error.about(self.bytes))?;
        self.handle = 0;
        Ok(())
    }
}

impl Drop for PhysicalMemory {
    fn drop(&mut self) {
        // At process exit the driver is gone before the memory.
        let _ = self.end();
    }
}

/// A reserved address range, freed on drop. Unmap it first.
#[derive(Debug)]
pub struct AddressRange {
    driver: &'static Driver,
    address: Address,
    bytes: Bytes,
}

impl AddressRange {
    /// Reserves addresses at a multiple of `alignment`; 0 leaves the alignment to the driver.
    pub fn reserve(driver: &'static Driver, bytes: Bytes, alignment: Bytes) -> Result<Self> {
        let mut address = 0;
        let (size, alignment) = (bytes.get() as usize, alignment.get() as usize);
        // SAFETY: the out-parameter is valid.
        unsafe { driver.reserve(&raw mut address, size, alignment, 0, 0) }
            .map_err(|error| driver.explain(error, bytes))?;
        Ok(Self { driver, address: Address(address), bytes })
    }

    /// A range that other code reserved, and frees.
    ///
    /// # Safety
    ///
    /// The addresses stay reserved while the result is used, and memory that is mapped there is not unmapped by others.
    pub unsafe fn borrow(driver: &'static Driver, address: Address, bytes: Bytes) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self { driver, address, bytes })
    }

    /// The first address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Its length.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// All of it, for copies and fills where memory is mapped.
    pub fn region(&self) -> Region<'_> {
        Region::new(self.driver, self.address, self.bytes)
    }

    /// Maps all of `memory` at an offset. It is inaccessible before [`AddressRange::set_access`].
    pub fn map(&self, offset: Bytes, memory: &PhysicalMemory) -> Result<()> {
        let address = self.at(offset, memory.bytes)?;
        // SAFETY: the addresses are in this range, and the handle is live.
        unsafe { self.driver.map(address, memory.bytes.get() as usize, 0, memory.handle, 0) }
            .map_err(|error| error.about(memory.bytes))
    }

    /// Unmaps whole mappings in a part of the range. Does not wait for the GPU.
    pub fn unmap(&self, offset: Bytes, bytes: Bytes) -> Result<()> {
        let address = self.at(offset, bytes)?;
        // SAFETY: the addresses are in this range; no host slice ever refers to them.
        unsafe { self.driver.unmap(address, bytes.get() as usize) }.map_err(|error| error.about(bytes))
    }

    /// Sets the access rights of a part.
    pub fn set_access(&self, offset: Bytes, bytes: Bytes, who: &[(Location, Access)]) -> Result<()> {
        let address = self.at(offset, bytes)?;
        let describe = |&(location, access): &(Location, Access)| {
            let flags = access as u32;
            AccessDescription { location, flags }
        };
        // The common case of one device allocates no memory.
        if let [only] = who {
            return self.set_described(address, bytes, &[describe(only)]);
        }
        self.set_described(address, bytes, &who.iter().map(describe).collect::<Vec<_>>())
    }

    fn set_described(&self, address: u64, bytes: Bytes, who: &[AccessDescription]) -> Result<()> {
        // SAFETY: the addresses are in this range, and the descriptors outlive the call.
        unsafe { self.driver.set_access(address, bytes.get() as usize, who.as_ptr(), who.len()) }
            .map_err(|error| error.about(bytes))
    }

    /// The access rights of a location at an offset.
    pub fn access(&self, offset: Bytes, location: Location) -> Result<Access> {
        let address = self.at(offset, Bytes::new(1))?;
        let mut flags = 0;
        // SAFETY: the out-parameter is valid, and the location outlives the call.
        unsafe { self.driver.get_access(&raw mut flags, &raw const location, address) }?;
        Ok(match flags {
            0 => Access::None,
            1 => Access::Read,
            _ => Access::ReadWrite,
        })
    }

    /// Frees the addresses and returns the result.
    pub fn free(self) -> Result<()> {
        let (driver, address, bytes) = (self.driver, self.address, self.bytes);
        std::mem::forget(self);
        // SAFETY: this value owned the range exclusively.
        unsafe { driver.unreserve(address.0, bytes.get() as usize) }.map_err(|error| error.about(bytes))
    }

    fn at(&self, offset: Bytes, bytes: Bytes) -> Result<u64> {
        let end = offset.get().saturating_add(bytes.get());
        if end > self.bytes.get() {
            return Err(Error::OutOfBounds { end: Bytes::new(end), region: self.bytes });
        }
        Ok(self.address.0 + offset.get())
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        // SAFETY: this value owns the range exclusively. At process exit the driver is gone before it and returns an
        // error.
        let _ = unsafe { self.driver.unreserve(self.address.0, self.bytes.get() as usize) };
    }
}
