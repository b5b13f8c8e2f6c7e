//! A bounds-checked range of device memory, for copies and fills.
//!
//! Functions that wait take slices safely. Stream-ordered copies from or to the host are unsafe: the driver accesses
//! the host's memory after they return.

use std::marker::PhantomData;

use makeroom_core::{Address, Bytes};

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Bytes on the device, valid while this is used.
#[derive(Clone, Copy, Debug)]
pub struct Region<'memory> {
    driver: &'static Driver,
    address: Address,
    bytes: Bytes,
    memory: PhantomData<&'memory ()>,
}

impl Region<'_> {
    pub(crate) fn new(driver: &'static Driver, address: Address, bytes: Bytes) -> Self {
        Self { driver, address, bytes, memory: PhantomData }
    }

    /// A region of memory owned elsewhere.
    ///
    /// # Safety
    ///
    /// The bytes are device memory for as long as the region is used, and no host slice refers to them.
    pub unsafe fn from_address(driver: &'static Driver, address: Address, bytes: Bytes) -> Self {
        Self::new(driver, address, bytes)
    }

    /// The first address.
    pub fn address(self) -> Address {
        self.address
    }

    /// Its length.
    pub fn bytes(self) -> Bytes {
        self.bytes
    }

    /// A subrange.
    pub fn part(self, offset: Bytes, bytes: Bytes) -> Result<Self> {
        let end = offset.get().saturating_add(bytes.get());
        self.holds(end)?;
        Ok(Self { address: Address(self.address.0 + offset.get()), bytes, ..self })
    }

    /// Copies from the host to its start, and waits.
    pub fn write(self, from: &[u8]) -> Result<()> {
        self.holds(from.len() as u64)?;
        // SAFETY: the source is a slice, and the region holds as many bytes.
        unsafe { self.driver.copy_to_device(self.address.0, from.as_ptr().cast(), from.len()) }
            .map_err(|error| error.about(Bytes::new(from.len() as u64)))
    }

    /// Copies from its start to the host, and waits.
    pub fn read(self, to: &mut [u8]) -> Result<()> {
        self.holds(to.len() as u64)?;
        // SAFETY: the target is a slice, and the region holds as many bytes.
        unsafe { self.driver.copy_to_host(to.as_mut_ptr().cast(), self.address.0, to.len()) }
            .map_err(|error| error.about(Bytes::new(to.len() as u64)))
    }

    /// Copies all of another region to its start.
    pub fn copy_from(self, from: Region<'_>) -> Result<()> {
        self.holds(from.bytes.get())?;
        // SAFETY: both regions hold as many bytes.
        unsafe { self.driver.copy_on_device(self.address.0, from.address.0, from.bytes.get() as usize) }
            .map_err(|error| error.about(from.bytes))
    }

    /// Fills it with a byte.
    pub fn fill(self, value: u8) -> Result<()> {
        // SAFETY: the region holds as many bytes.
        unsafe { self.driver.fill(self.address.0, value, self.bytes.get() as usize) }
            .map_err(|error| error.about(self.bytes))
    }

    /// Fills it with a byte in stream order.
    pub fn fill_on(self, value: u8, stream: &Stream) -> Result<()> {
        // SAFETY: the region holds as many bytes, and the stream is live.
        unsafe { self.driver.fill_async(self.address.0, value, self.bytes.get() as usize, stream.handle()) }
            .map_err(|error| error.about(self.bytes))
    }

    /// Copies all of another region to its start, in stream order.
    pub fn copy_from_on(self, from: Region<'_>, stream: &Stream) -> Result<()> {
        self.holds(from.bytes.get())?;
        let bytes = from.bytes.get() as usize;
        // SAFETY: both regions hold as many bytes, and the stream is live.
        unsafe { self.driver.copy_on_device_async(self.address.0, from.address.0, bytes, stream.handle()) }
            .map_err(|error| error.about(from.bytes))
    }

    /// Copies from the host in stream order.
    ///
    /// # Safety
    ///
    /// The slice does not change until the stream has done this.
    pub unsafe fn write_on(self, from: &[u8], stream: &Stream) -> Result<()> {
        self.holds(from.len() as u64)?;
        let (start, handle) = (from.as_ptr().cast(), stream.handle());
        // SAFETY: the region holds as many bytes; the caller keeps the source unchanged.
        unsafe { self.driver.copy_to_device_async(self.address.0, start, from.len(), handle) }
            .map_err(|error| error.about(Bytes::new(from.len() as u64)))
    }

    /// Copies to the host in stream order.
    ///
    /// # Safety
    ///
    /// The slice is not read or written until the stream has done this.
    pub unsafe fn read_on(self, to: &mut [u8], stream: &Stream) -> Result<()> {
        self.holds(to.len() as u64)?;
        let (start, handle) = (to.as_mut_ptr().cast(), stream.handle());
        // SAFETY: the region holds as many bytes; the caller does not access the target.
        unsafe { self.driver.copy_to_host_async(start, self.address.0, to.len(), handle) }
            .map_err(|error| error.about(Bytes::new(to.len() as u64)))
    }

    fn holds(self, end: u64) -> Result<()> {
        if end > self.bytes.get() {
            return Err(Error::OutOfBounds { end: Bytes::new(end), region: self.bytes });
        }
        Ok(())
    }
}
