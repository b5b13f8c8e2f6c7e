//! cudarc's streams and views on the pool's memory (feature `cudarc`).
//!
//! A [`CudarcStream`] is a stream of cudarc's whose buffers come from a pool. A [`CudarcBuffer`] is such memory in cudarc's
//! own types: it reads as a `CudaSlice`, is a kernel argument and a side of every copy through views, and cudarc's events
//! order its uses on several streams. What is not handed out is the `CudaSlice` itself to be owned or replaced: cudarc
//! would give memory to the driver that is the pool's.

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

/// A stream of cudarc's whose buffers come from a pool. Cloning it is cheap and gives the same stream.
#[derive(Clone, Debug)]
pub struct CudarcStream {
    stream: Arc<CudaStream>,
    memory: PoolStream,
}

impl CudarcStream {
    /// Memory for a stream from a pool, which keeps the stream until no buffer of it is left.
    pub fn new(pool: &Pool, stream: &Arc<CudaStream>) -> Result<Self> {
        Self::through(pool, Arc::new(pool.clone()), stream)
    }

    /// The same through layers over the pool.
    pub fn through(pool: &Pool, layers: Arc<dyn Allocator>, stream: &Arc<CudaStream>) -> Result<Self> {
        if stream.context().cu_ctx() as u64 != pool.context_handle() {
            return Err(PoolError::OtherContext { device: pool.device() });
        }
        let handle = stream.cu_stream() as u64;
        // SAFETY: the context was compared, and the stream lives as long as this hold on it.
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

/// `len` values of `T` from a pool, in cudarc's types. Dropping it gives the memory back to the pool in the order of its
/// stream, after what cudarc knows other streams do with it.
#[derive(Debug)]
pub struct CudarcBuffer<T: Pod> {
    /// cudarc's picture of the memory. It is never dropped, because that would free it.
    slice: ManuallyDrop<CudaSlice<T>>,
    _memory: DeviceBuffer<T>,
}

impl<T: Pod> CudarcBuffer<T> {
    /// Memory with whatever was there before.
    #[track_caller]
    pub fn uninitialized(stream: &CudarcStream, len: usize) -> Result<Self> {
        Ok(Self::over(stream, DeviceBuffer::uninitialized(&stream.memory, len)?))
    }

    /// Memory of zero bytes, filled in the order of the stream.
    #[track_caller]
    pub fn zeroed(stream: &CudarcStream, len: usize) -> Result<Self> {
        Ok(Self::over(stream, DeviceBuffer::zeroed(&stream.memory, len)?))
    }

    /// A copy of what the host has; waits until it is there.
    #[track_caller]
    pub fn from_host(stream: &CudarcStream, values: &[T]) -> Result<Self> {
        Ok(Self::over(stream, DeviceBuffer::from_host(&stream.memory, values)?))
    }

    fn over(stream: &CudarcStream, memory: DeviceBuffer<T>) -> Self {
        // SAFETY: the memory holds so many values, any bytes are a value of a `Pod` type, and the slice, which is not
        // dropped, frees nothing.
        let slice = unsafe { stream.stream.upgrade_device_ptr(memory.address().0, memory.len()) };
        Self { slice: ManuallyDrop::new(slice), _memory: memory }
    }

    /// All of it, to be read.
    pub fn view(&self) -> CudaView<'_, T> {
        self.slice.as_view()
    }

    /// All of it, to be written.
    pub fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.as_view_mut()
    }
}

/// As a `CudaSlice`, to be read: as a kernel argument, as the source of a copy.
impl<T: Pod> Deref for CudarcBuffer<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T: Pod> Drop for CudarcBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: the slice is taken once, here; the memory, which is freed next, is no part of it any more.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        // Lets the stream wait for what other streams do with the memory, and lets go of cudarc's events.
        slice.leak();
    }
}
