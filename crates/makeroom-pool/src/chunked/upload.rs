//! Uploads data that fits on the device, at bus speed, from unpinned memory or from a file.

use std::io::Read;
use std::mem::size_of;

use bytemuck::Pod;
use makeroom_core::Bytes;

use super::source::{FromRead, FromSlice, Source};
use super::{PiecePosition, Stage, piece_bytes, with_room};
use crate::buffer::DeviceBuffer;
use crate::error::{PoolError, Result};
use crate::host::PinnedPool;
use crate::pool::Pool;
use crate::stream::PoolStream;

/// Uploads through two pinned pieces: while one is copied, the next is filled.
#[derive(Clone, Debug)]
pub struct ChunkedUpload {
    pool: Pool,
    pinned: PinnedPool,
    piece: Option<u64>,
}

impl ChunkedUpload {
    /// Uploads to a pool's device. The pinned pieces are kept for the next upload.
    pub fn new(pool: &Pool) -> Result<Self> {
        let pinned = PinnedPool::new(crate::Allocator::driver(pool), pool.device(), None)?;
        Ok(Self { pool: pool.clone(), pinned, piece: None })
    }

    /// Uses pieces of this size instead of one derived from the free memory.
    #[must_use]
    pub fn with_piece(self, bytes: Bytes) -> Self {
        Self { piece: Some(bytes.get()), ..self }
    }

    /// A buffer with a slice's values, available in stream order.
    #[track_caller]
    pub fn from_slice<T: Pod + Send + Sync>(
        &self,
        stream: &PoolStream,
        values: &[T],
    ) -> Result<DeviceBuffer<T>> {
        self.upload(DeviceBuffer::uninitialized(stream, values.len())?, FromSlice(values))
    }

    /// A buffer with the next `len` values of a reader; fewer are an error.
    #[track_caller]
    pub fn from_reader<T: Pod + Send + Sync>(
        &self,
        stream: &PoolStream,
        reader: impl Read,
        len: usize,
    ) -> Result<DeviceBuffer<T>> {
        self.upload(DeviceBuffer::uninitialized(stream, len)?, FromRead(reader))
    }

    fn upload<T: Pod>(
        &self,
        mut buffer: DeviceBuffer<T>,
        mut source: impl Source<T>,
    ) -> Result<DeviceBuffer<T>> {
        let (len, size) = (buffer.len(), size_of::<T>().max(1));
        let wanted = self.piece.map_or_else(|| piece_bytes(&self.pool, 1), Ok)?;
        let stages = with_room(wanted, |bytes| {
            let count = (bytes as usize / size).clamp(1, len.max(1));
            Ok([self.pinned.uninitialized(count)?, self.pinned.uninitialized(count)?])
        })?;
        let mut stages = stages.map(Stage::Idle);
        let mut start = 0;
        for number in 0.. {
            if start == len {
                break;
            }
            let stage = &mut stages[number % 2];
            let mut piece = stage.take()?;
            let count = piece.len().min(len - start);
            let place = PiecePosition {
                number: number as u64,
                start: (start * size) as u64,
                bytes: (count * size) as u64,
            };
            let filled = source.fill(&mut piece[..count]).map_err(|cause| place.failed(cause))?;
            if filled < count {
                return Err(place.failed(PoolError::LengthsDiffer { from: start + filled, to: len }));
            }
            let mut whole = buffer.as_mut_slice();
            let mut part = whole.slice_mut(start..start + count)?;
            *stage = Stage::Busy(piece.copy_to(&mut part).map_err(|error| place.failed(error))?);
            start += count;
        }
        Ok(buffer)
    }
}
