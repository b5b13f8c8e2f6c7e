//! Addresses and memory apart: a range of addresses is reserved, memory is made, and put at addresses.
//!
//! A handle is mapped and unmapped whole. Unmapping does not wait for the GPU: who unmaps must know that it is done
//! there, or the GPU faults.

use makeroom_core::{Address, Bytes};

use crate::abi::{AccessDescription, AllocationProperties, Location};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::region::Region;

/// Which grain; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Granularity {
    /// The smallest that can be had.
    Minimum = 0,
    /// The one that is best for speed.
    Recommended = 1,
}

/// What somebody may do with memory; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Access {
    /// Nothing.
    None = 0,
    /// Read.
    Read = 1,
    /// Read and write.
    ReadWrite = 3,
}

impl Driver {
    /// The grain in which memory at a place is made and mapped.
    pub fn granularity_at(&self, location: Location, granularity: Granularity) -> Result<Bytes> {
        let wanted = AllocationProperties::pinned(location);
        let mut bytes = 0;
        // SAFETY: the result has a place, and the properties stand still.
        unsafe { self.granularity(&raw mut bytes, &raw const wanted, granularity as u32) }?;
        Ok(Bytes::new(bytes as u64))
    }
}

/// Memory without an address, given up when dropped. It lives on where it is mapped.
#[derive(Debug)]
pub struct PhysicalMemory {
    driver: &'static Driver,
    handle: u64,
    bytes: Bytes,
}

impl PhysicalMemory {
    /// Makes memory at a place: a multiple of its grain.
    pub fn create(driver: &'static Driver, location: Location, bytes: Bytes) -> Result<Self> {
        let wanted = AllocationProperties::pinned(location);
        let mut handle = 0;
        // SAFETY: the result has a place, and the properties stand still.
        unsafe { driver.create(&raw mut handle, bytes.get() as usize, &raw const wanted, 0) }
            .map_err(|error| driver.explain(error, bytes))?;
        Ok(Self { driver, handle, bytes })
    }

    /// The driver's handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// How much it is.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Gives it up and says how that went. Where it was refused it is tried once more.
    pub fn release(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.handle == 0 {
            return Ok(());
        }
        // SAFETY: the handle is this value's alone, and not released before.
        unsafe { self.driver.release(self.handle) }.map_err(|error| error.about(self.bytes))?;
        self.handle = 0;
        Ok(())
    }
}

impl Drop for PhysicalMemory {
    fn drop(&mut self) {
        // At the end of the process the driver is gone before the memory is.
        let _ = self.end();
    }
}

/// Addresses without memory, given back when dropped. Unmap what is mapped there first.
#[derive(Debug)]
pub struct AddressRange {
    driver: &'static Driver,
    address: Address,
    bytes: Bytes,
}

impl AddressRange {
    /// Reserves addresses at a multiple of `alignment`; 0 leaves that to the driver.
    pub fn reserve(driver: &'static Driver, bytes: Bytes, alignment: Bytes) -> Result<Self> {
        let mut address = 0;
        let (size, alignment) = (bytes.get() as usize, alignment.get() as usize);
        // SAFETY: the result has a place.
        unsafe { driver.reserve(&raw mut address, size, alignment, 0, 0) }
            .map_err(|error| driver.explain(error, bytes))?;
        Ok(Self { driver, address: Address(address), bytes })
    }

    /// The first address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// How many.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// All of it, to be copied and filled where memory is mapped.
    pub fn region(&self) -> Region<'_> {
        Region::new(self.driver, self.address, self.bytes)
    }

    /// Puts memory at an offset, all of it. Nobody may use it before [`AddressRange::set_access`].
    pub fn map(&self, offset: Bytes, memory: &PhysicalMemory) -> Result<()> {
        let address = self.at(offset, memory.bytes)?;
        // SAFETY: the addresses are this range's, and the handle is live.
        unsafe { self.driver.map(address, memory.bytes.get() as usize, 0, memory.handle, 0) }
            .map_err(|error| error.about(memory.bytes))
    }

    /// Takes away what is mapped in a part: whole mappings only. Does not wait for the GPU.
    pub fn unmap(&self, offset: Bytes, bytes: Bytes) -> Result<()> {
        let address = self.at(offset, bytes)?;
        // SAFETY: the addresses are this range's; no slice of the host's is ever made of them.
        unsafe { self.driver.unmap(address, bytes.get() as usize) }.map_err(|error| error.about(bytes))
    }

    /// Says who may use a part.
    pub fn set_access(&self, offset: Bytes, bytes: Bytes, who: &[(Location, Access)]) -> Result<()> {
        let address = self.at(offset, bytes)?;
        let describe = |&(location, access): &(Location, Access)| {
            let flags = access as u32;
            AccessDescription { location, flags }
        };
        // One device is what almost everybody names; that takes no memory.
        if let [only] = who {
            return self.set_described(address, bytes, &[describe(only)]);
        }
        self.set_described(address, bytes, &who.iter().map(describe).collect::<Vec<_>>())
    }

    fn set_described(&self, address: u64, bytes: Bytes, who: &[AccessDescription]) -> Result<()> {
        // SAFETY: the addresses are this range's, and the descriptions stand still.
        unsafe { self.driver.set_access(address, bytes.get() as usize, who.as_ptr(), who.len()) }
            .map_err(|error| error.about(bytes))
    }

    /// What a place may do at an offset.
    pub fn access(&self, offset: Bytes, location: Location) -> Result<Access> {
        let address = self.at(offset, Bytes::new(1))?;
        let mut flags = 0;
        // SAFETY: the result has a place, and the location stands still.
        unsafe { self.driver.get_access(&raw mut flags, &raw const location, address) }?;
        Ok(match flags {
            0 => Access::None,
            1 => Access::Read,
            _ => Access::ReadWrite,
        })
    }

    /// Gives the addresses back and says how that went.
    pub fn free(self) -> Result<()> {
        let (driver, address, bytes) = (self.driver, self.address, self.bytes);
        std::mem::forget(self);
        // SAFETY: the range was this value's alone.
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
        // SAFETY: the range is this value's alone. At the end of the process the driver is gone before it is.
        let _ = unsafe { self.driver.unreserve(self.address.0, self.bytes.get() as usize) };
    }
}
