//! Typed slices of a buffer, used for copies. Functions that take host slices wait for the copy.

use std::marker::PhantomData;
use std::mem::size_of;
use std::ops::Range;

use bytemuck::Pod;
use makeroom_core::{Address, Bytes};
use makeroom_cuda::Region;

use crate::error::{PoolError, Result};
use crate::stream::PoolStream;

/// A read-only slice of values on the device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSlice<'buffer, T: Pod> {
    region: Region<'buffer>,
    stream: &'buffer PoolStream,
    values: PhantomData<&'buffer [T]>,
}

/// A writable slice of values on the device.
#[derive(Debug)]
pub struct DeviceSliceMut<'buffer, T: Pod> {
    region: Region<'buffer>,
    stream: &'buffer PoolStream,
    values: PhantomData<&'buffer mut [T]>,
}

fn count<T>(region: Region<'_>) -> usize {
    (region.bytes().get() as usize).checked_div(size_of::<T>()).unwrap_or(0)
}

fn part<T>(region: Region<'_>, range: Range<usize>) -> Result<Region<'_>> {
    let size = size_of::<T>();
    let outside = || PoolError::LengthsDiffer { from: range.end, to: count::<T>(region) };
    let length = range.end.checked_sub(range.start).ok_or_else(outside)?;
    if range.end > count::<T>(region) {
        return Err(outside());
    }
    Ok(region.part(Bytes::new((range.start * size) as u64), Bytes::new((length * size) as u64))?)
}

impl<'buffer, T: Pod> DeviceSlice<'buffer, T> {
    pub(crate) fn new(region: Region<'buffer>, stream: &'buffer PoolStream) -> Self {
        Self { region, stream, values: PhantomData }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        count::<T>(self.region)
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its address, for kernels.
    pub fn address(&self) -> Address {
        self.region.address()
    }

    /// A subslice.
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        Ok(Self::new(part::<T>(self.region, range)?, self.stream))
    }

    /// Copies the values to the host, after waiting for the stream.
    pub fn to_host(&self) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); self.len()];
        self.copy_to_host(&mut values)?;
        Ok(values)
    }

    /// Copies into a host slice, after waiting for the stream.
    pub fn copy_to_host(&self, to: &mut [T]) -> Result<()> {
        if to.len() != self.len() {
            return Err(PoolError::LengthsDiffer { from: self.len(), to: to.len() });
        }
        self.stream.synchronize()?;
        if !to.is_empty() {
            self.region.read(bytemuck::cast_slice_mut(to))?;
        }
        Ok(())
    }
}

impl<T: Pod> DeviceSlice<'_, T> {
    pub(crate) fn stream(&self) -> &PoolStream {
        self.stream
    }

    /// Copies to the host in stream order.
    ///
    /// # Safety
    ///
    /// The target is not read or written until the stream has done this.
    pub(crate) unsafe fn copy_to_host_later(&self, to: &mut [T]) -> Result<()> {
        if to.len() != self.len() {
            return Err(PoolError::LengthsDiffer { from: self.len(), to: to.len() });
        }
        if !to.is_empty() {
            // SAFETY: guaranteed by the caller.
            unsafe { self.region.read_on(bytemuck::cast_slice_mut(to), self.stream.stream()) }?;
        }
        Ok(())
    }
}

impl<'buffer, T: Pod> DeviceSliceMut<'buffer, T> {
    pub(crate) fn new(region: Region<'buffer>, stream: &'buffer PoolStream) -> Self {
        Self { region, stream, values: PhantomData }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        count::<T>(self.region)
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its address, for kernels.
    pub fn address(&self) -> Address {
        self.region.address()
    }

    /// A writable subslice.
    pub fn slice_mut(&mut self, range: Range<usize>) -> Result<DeviceSliceMut<'_, T>> {
        Ok(DeviceSliceMut::new(part::<T>(self.region, range)?, self.stream))
    }

    /// Copies from the host, after waiting for the stream. Returns when the copy is done.
    pub fn copy_from_host(&mut self, from: &[T]) -> Result<()> {
        if from.len() != self.len() {
            return Err(PoolError::LengthsDiffer { from: from.len(), to: self.len() });
        }
        // Earlier work may still use these bytes: they may have been another buffer's.
        self.stream.synchronize()?;
        if !from.is_empty() {
            self.region.write(bytemuck::cast_slice(from))?;
        }
        Ok(())
    }

    pub(crate) fn stream(&self) -> &PoolStream {
        self.stream
    }

    /// Reborrows it as read-only.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.region, self.stream)
    }

    /// Copies from the host in stream order.
    ///
    /// # Safety
    ///
    /// The source does not change until the stream has done this.
    pub(crate) unsafe fn copy_from_host_later(&mut self, from: &[T]) -> Result<()> {
        if from.len() != self.len() {
            return Err(PoolError::LengthsDiffer { from: from.len(), to: self.len() });
        }
        if !from.is_empty() {
            // SAFETY: guaranteed by the caller.
            unsafe { self.region.write_on(bytemuck::cast_slice(from), self.stream.stream()) }?;
        }
        Ok(())
    }

    /// Copies on the device, in the order of this slice's stream. If the source has another stream, this stream first
    /// waits for that one, and that one then waits for the copy.
    pub fn copy_from(&mut self, from: &DeviceSlice<'_, T>) -> Result<()> {
        if from.len() != self.len() {
            return Err(PoolError::LengthsDiffer { from: from.len(), to: self.len() });
        }
        if from.is_empty() {
            return Ok(());
        }
        let (here, there) = (self.stream, from.stream);
        if here.id() != there.id() {
            here.wait_for(there)?;
        }
        self.region.copy_from_on(from.region, here.stream())?;
        if here.id() != there.id() {
            there.wait_for(here)?;
        }
        Ok(())
    }

    /// Fills it with zero bytes, in stream order.
    pub fn fill_zero(&mut self) -> Result<()> {
        if !self.is_empty() {
            self.region.fill_on(0, self.stream.stream())?;
        }
        Ok(())
    }
}
