//! Typed device memory that frees itself on its stream, on every path.

use std::marker::PhantomData;
use std::mem::size_of;

use bytemuck::Pod;
use makeroom_core::{Address, Bytes};
use makeroom_cuda::Region;

use crate::error::{PoolError, Result};
use crate::site::Site;
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stream::PoolStream;

/// `len` values of `T` on the device. Dropping it frees the memory in stream order: work already submitted there may
/// still use it.
#[derive(Debug)]
pub struct DeviceBuffer<T: Pod> {
    stream: PoolStream,
    address: Address,
    len: usize,
    values: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Memory with arbitrary content. That is safe, because any bytes are a valid `Pod` value.
    #[track_caller]
    pub fn uninitialized(stream: &PoolStream, len: usize) -> Result<Self> {
        let too_many = PoolError::TooManyElements { count: len, size: size_of::<T>() };
        let bytes = len.checked_mul(size_of::<T>()).ok_or(too_many)?;
        let address = stream.allocator().allocate(bytes as u64, stream.id(), Site::here())?;
        Ok(Self { stream: stream.clone(), address, len, values: PhantomData })
    }

    /// Zeroed memory, filled in stream order.
    #[track_caller]
    pub fn zeroed(stream: &PoolStream, len: usize) -> Result<Self> {
        let buffer = Self::uninitialized(stream, len)?;
        if len > 0 {
            buffer.region().fill_on(0, stream.stream())?;
        }
        Ok(buffer)
    }

    /// A copy of host values. Returns when the copy is done.
    #[track_caller]
    pub fn from_host(stream: &PoolStream, values: &[T]) -> Result<Self> {
        let mut buffer = Self::uninitialized(stream, values.len())?;
        buffer.as_mut_slice().copy_from_host(values)?;
        Ok(buffer)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its address, for kernels.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The stream whose order it follows.
    pub fn stream(&self) -> &PoolStream {
        &self.stream
    }

    /// All of it, read-only.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.region(), &self.stream)
    }

    /// All of it, writable.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(self.region(), &self.stream)
    }

    /// Copies the values to the host, after waiting for the stream.
    pub fn to_host(&self) -> Result<Vec<T>> {
        self.as_slice().to_host()
    }

    /// Another stream uses it too: its memory is not reused before that stream has finished the work it had at the
    /// time of the free.
    pub fn record_stream(&self, stream: &PoolStream) -> Result<()> {
        self.stream.allocator().record_stream(self.address, stream.id())
    }

    /// Frees it and returns the result; dropping it does the same and ignores errors.
    #[track_caller]
    pub fn free(self) -> Result<()> {
        let (stream, address, _) = self.into_raw();
        // SAFETY: only this value used the memory. Other streams were recorded, or their users have waited.
        unsafe { stream.allocator().free(address, stream.id(), Site::here()) }
    }

    /// Gives up the memory without freeing it; [`DeviceBuffer::from_raw`] is the inverse.
    pub fn into_raw(self) -> (PoolStream, Address, usize) {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the value is not dropped, so the stream is moved out exactly once.
        let stream = unsafe { std::ptr::read(&raw const this.stream) };
        (stream, this.address, this.len)
    }

    /// Takes over memory from [`DeviceBuffer::into_raw`].
    ///
    /// # Safety
    ///
    /// The three come from [`DeviceBuffer::into_raw`] of a buffer of the same type, once.
    pub unsafe fn from_raw(stream: PoolStream, address: Address, len: usize) -> Self {
        Self { stream, address, len, values: PhantomData }
    }

    pub(crate) fn region(&self) -> Region<'_> {
        let bytes = Bytes::new((self.len * size_of::<T>()) as u64);
        // SAFETY: this value owns the memory until it is dropped, and no host slice refers to it.
        unsafe { Region::from_address(self.stream.allocator().driver(), self.address, bytes) }
    }
}

impl<T: Pod> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: only this value used the memory. Other streams were recorded, or their users have waited.
        // Errors are ignored: they occur in a forked child and at process exit.
        let _ = unsafe { self.stream.allocator().free(self.address, self.stream.id(), Site::of_drop()) };
    }
}
