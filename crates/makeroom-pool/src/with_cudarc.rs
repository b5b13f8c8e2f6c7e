//! cudarc's streams and views on the pool's memory (feature `cudarc`).
//!
//! A [`CudarcStream`] is a cudarc stream whose buffers come from a pool. A [`CudarcBuffer`] is such memory in
//! cudarc's own types: it dereferences to a `CudaSlice`, works as a kernel argument and, through views, as either
//! side of a copy, and cudarc's events order its uses on several streams. It never gives out the `CudaSlice` by value
//! or mutable reference: cudarc would free the pool's memory with the driver.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut};

use crate::allocator::Allocator;
use crate::buffer::DeviceBuffer;
use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::stream::PoolStream;

/// A cudarc stream whose buffers come from a pool. Clones share the same stream.
#[derive(Clone, Debug)]
pub struct CudarcStream {
    stream: Arc<CudaStream>,
    memory: PoolStream,
}

impl CudarcStream {
    /// Attaches a pool to a stream, which stays alive as long as its buffers.
    pub fn new(pool: &Pool, stream: &Arc<CudaStream>) -> Result<Self> {
        Self::through(pool, Arc::new(pool.clone()), stream)
    }

    /// The same, through layers over the pool.
    pub fn through(pool: &Pool, layers: Arc<dyn Allocator>, stream: &Arc<CudaStream>) -> Result<Self> {
        if stream.context().cu_ctx() as u64 != pool.context_handle() {
            return Err(PoolError::OtherContext { device: pool.device() });
        }
        let handle = stream.cu_stream() as u64;
        // SAFETY: the contexts are equal, and the stream lives as long as this reference.
        let memory = unsafe { PoolStream::owned_by(layers, handle, stream.clone()) };
        Ok(Self { stream: stream.clone(), memory })
    }

    /// cudarc's stream.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// The same stream for [`DeviceBuffer`]s.
    pub fn pool_stream(&self) -> &PoolStream {
        &self.memory
    }
}

/// `len` values of `T` from a pool, in cudarc's types. Dropping it frees the memory in stream order, after the uses
/// on other streams that cudarc knows of.
#[derive(Debug)]
pub struct CudarcBuffer<T: Pod> {
    /// cudarc's view of the memory. It is never dropped, because that would free the memory.
    slice: ManuallyDrop<CudaSlice<T>>,
    _memory: DeviceBuffer<T>,
}

impl<T: Pod> CudarcBuffer<T> {
    /// Memory with arbitrary content.
    #[track_caller]
    pub fn uninitialized(stream: &CudarcStream, len: usize) -> Result<Self> {
        Ok(Self::over(stream, DeviceBuffer::uninitialized(&stream.memory, len)?))
    }

    /// Zeroed memory, filled in stream order.
    #[track_caller]
    pub fn zeroed(stream: &CudarcStream, len: usize) -> Result<Self> {
        Ok(Self::over(stream, DeviceBuffer::zeroed(&stream.memory, len)?))
    }

    /// A copy of host values. Returns when the copy is done.
    #[track_caller]
    pub fn from_host(stream: &CudarcStream, values: &[T]) -> Result<Self> {
        Ok(Self::over(stream, DeviceBuffer::from_host(&stream.memory, values)?))
    }

    fn over(stream: &CudarcStream, memory: DeviceBuffer<T>) -> Self {
        // SAFETY: the memory holds `len` values, any bytes are a valid `Pod` value, and the slice is never dropped,
        // so it frees nothing.
        let slice = unsafe { stream.stream.upgrade_device_ptr(memory.address().0, memory.len()) };
        Self { slice: ManuallyDrop::new(slice), _memory: memory }
    }

    /// All of it, read-only.
    pub fn view(&self) -> CudaView<'_, T> {
        self.slice.as_view()
    }

    /// All of it, writable.
    pub fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.as_view_mut()
    }
}

/// As a read-only `CudaSlice`: a kernel argument, or the source of a copy.
impl<T: Pod> Deref for CudarcBuffer<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T: Pod> Drop for CudarcBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: the slice is taken only here, and leaked below, so it does not free the memory.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        // Makes the stream wait for the uses on other streams, and drops cudarc's events.
        slice.leak();
    }
}
