//! Typed device memory that frees itself, on its stream, on every path.

use std::marker::PhantomData;
use std::mem::size_of;

use bytemuck::Pod;
use makeroom_core::{Address, Bytes};
use makeroom_cuda::Region;

use crate::error::{PoolError, Result};
use crate::site::Site;
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stream::PoolStream;

/// `len` values of `T` on the device. Dropping it gives the memory back in the order of its stream: work that was
/// submitted there before may still use it.
#[derive(Debug)]
pub struct DeviceBuffer<T: Pod> {
    stream: PoolStream,
    address: Address,
    len: usize,
    values: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Memory with whatever was there before. Any bytes are a value of a `Pod` type, so that is no danger, only
    /// rarely of use before it is written.
    #[track_caller]
    pub fn uninitialized(stream: &PoolStream, len: usize) -> Result<Self> {
        let too_many = PoolError::TooManyElements { count: len, size: size_of::<T>() };
        let bytes = len.checked_mul(size_of::<T>()).ok_or(too_many)?;
        let address = stream.allocator().allocate(bytes as u64, stream.id(), Site::here())?;
        Ok(Self { stream: stream.clone(), address, len, values: PhantomData })
    }

    /// Memory of zero bytes, filled in the order of the stream.
    #[track_caller]
    pub fn zeroed(stream: &PoolStream, len: usize) -> Result<Self> {
        let buffer = Self::uninitialized(stream, len)?;
        if len > 0 {
            buffer.region().fill_on(0, stream.stream())?;
        }
        Ok(buffer)
    }

    /// A copy of what the host has; waits until it is there.
    #[track_caller]
    pub fn from_host(stream: &PoolStream, values: &[T]) -> Result<Self> {
        let mut buffer = Self::uninitialized(stream, values.len())?;
        buffer.as_mut_slice().copy_from_host(values)?;
        Ok(buffer)
    }

    /// How many values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where it begins, for kernels.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The stream whose order it follows.
    pub fn stream(&self) -> &PoolStream {
        &self.stream
    }

    /// All of it, to be read.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.region(), &self.stream)
    }

    /// All of it, to be written.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(self.region(), &self.stream)
    }

    /// What it holds, on the host; waits for the stream first.
    pub fn to_host(&self) -> Result<Vec<T>> {
        self.as_slice().to_host()
    }

    /// Another stream uses it too: its memory is not used again before that stream has passed what it was given until
    /// the free.
    pub fn record_stream(&self, stream: &PoolStream) -> Result<()> {
        self.stream.allocator().record_stream(self.address, stream.id())
    }

    /// Frees it and says how that went; dropping it does the same and is not heard.
    #[track_caller]
    pub fn free(self) -> Result<()> {
        let (stream, address, _) = self.into_raw();
        // SAFETY: the memory was this value's alone. Other streams were named, or their users have waited.
        unsafe { stream.allocator().free(address, stream.id(), Site::here()) }
    }

    /// Gives up the memory without freeing it; [`DeviceBuffer::from_raw`] takes it back.
    pub fn into_raw(self) -> (PoolStream, Address, usize) {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the value is not dropped, so the stream is taken out of it exactly once.
        let stream = unsafe { std::ptr::read(&raw const this.stream) };
        (stream, this.address, this.len)
    }

    /// Takes memory over that was given up.
    ///
    /// # Safety
    ///
    /// The three come from [`DeviceBuffer::into_raw`] of a buffer of the same type, once.
    pub unsafe fn from_raw(stream: PoolStream, address: Address, len: usize) -> Self {
        Self { stream, address, len, values: PhantomData }
    }

    pub(crate) fn region(&self) -> Region<'_> {
        let bytes = Bytes::new((self.len * size_of::<T>()) as u64);
        // SAFETY: the memory is this value's until it is dropped, and no slice of the host's refers to it.
        unsafe { Region::from_address(self.stream.allocator().driver(), self.address, bytes) }
    }
}

impl<T: Pod> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: the memory was this value's alone. Other streams were named, or their users have waited.
        // In a forked child and at the end of the process there is nobody to hear an error.
        let _ = unsafe { self.stream.allocator().free(self.address, self.stream.id(), Site::of_drop()) };
    }
}
