//! Processes data larger than the device: each piece is uploaded and processed, and its results are downloaded.

use std::io::Read;
use std::mem::size_of;

use bytemuck::Pod;
use makeroom_core::Bytes;
use makeroom_cuda::{Event, EventKind};

use super::source::{FromRead, FromSlice, Source, copy};
use super::{PiecePosition, Stage, piece_bytes, with_room};
use crate::allocator::Allocator as _;
use crate::buffer::DeviceBuffer;
use crate::error::{PoolError, Result};
use crate::host::PinnedPool;
use crate::pool::Pool;
use crate::slice::{DeviceSlice, DeviceSliceMut};
use crate::stream::PoolStream;

/// Processes data in pieces. The three streams and the pinned memory are kept for the next call.
#[derive(Clone, Debug)]
pub struct ChunkedMap {
    pool: Pool,
    pinned: PinnedPool,
    upload: PoolStream,
    work: PoolStream,
    download: PoolStream,
    piece: Option<u64>,
}

/// A piece on the device: its values, space for results, and the stream that orders both. If work is submitted to
/// another stream, this stream must wait for it.
#[derive(Debug)]
pub struct Chunk<'piece, T: Pod, U: Pod> {
    /// Its number, from 0.
    pub number: u64,
    /// Its values.
    pub input: DeviceSlice<'piece, T>,
    /// As many results, uninitialized. Empty if none are wanted.
    pub output: DeviceSliceMut<'piece, U>,
    /// The stream.
    pub stream: &'piece PoolStream,
}

/// Summary of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// Number of pieces.
    pub pieces: u64,
    /// Size of the pieces, except the last.
    pub piece: Bytes,
    /// Number of values.
    pub values: u64,
}

/// One half of the double buffer. Events ensure that a piece enters only after the one before has left.
struct Slot<T: Pod, U: Pod> {
    filled: Stage<T>,
    input: DeviceBuffer<T>,
    output: DeviceBuffer<U>,
    /// Results being copied to the host, and where they belong.
    results: Stage<U>,
    awaited: Option<(PiecePosition, usize, usize)>,
    uploaded: Event,
    worked: Event,
    downloaded: Event,
}

impl ChunkedMap {
    /// Processes data on a pool's device.
    pub fn new(pool: &Pool) -> Result<Self> {
        let pinned = PinnedPool::new(pool.driver(), pool.device(), None)?;
        let (upload, work, download) = (pool.stream()?, pool.stream()?, pool.stream()?);
        Ok(Self { pool: pool.clone(), pinned, upload, work, download, piece: None })
    }

    /// Uses pieces of this size instead of one derived from the free memory.
    #[must_use]
    pub fn with_piece(self, bytes: Bytes) -> Self {
        Self { piece: Some(bytes.get()), ..self }
    }

    /// Calls `work` for each piece of `input`, and copies its results to `output`, one per value.
    pub fn map<T: Pod + Send + Sync, U: Pod + Send + Sync>(
        &self,
        input: &[T],
        output: &mut [U],
        work: impl FnMut(Chunk<'_, T, U>) -> Result<()>,
    ) -> Result<Chunks> {
        if input.len() != output.len() {
            return Err(PoolError::LengthsDiffer { from: input.len(), to: output.len() });
        }
        let most = input.len();
        self.run(FromSlice(input), most, true, work, |start, results| {
            copy(&mut output[start..start + results.len()], results);
            Ok(())
        })
    }

    /// The same for all values from a reader; results are passed to `take`, in order.
    pub fn map_reader<T: Pod + Send + Sync, U: Pod + Send + Sync>(
        &self,
        reader: impl Read,
        work: impl FnMut(Chunk<'_, T, U>) -> Result<()>,
        mut take: impl FnMut(&[U]) -> Result<()>,
    ) -> Result<Chunks> {
        self.run(FromRead(reader), usize::MAX, true, work, |_, results| take(results))
    }

    /// Calls `work` for each piece, without results.
    pub fn for_each<T: Pod + Send + Sync>(
        &self,
        input: &[T],
        work: impl FnMut(Chunk<'_, T, u8>) -> Result<()>,
    ) -> Result<Chunks> {
        self.run(FromSlice(input), input.len(), false, work, |_, _| Ok(()))
    }

    fn slots<T: Pod, U: Pod>(&self, most: usize, brings_back: bool) -> Result<[Slot<T, U>; 2]> {
        let size = size_of::<T>().max(1);
        let wanted = self.piece.map_or_else(|| piece_bytes(&self.pool, 4), Ok)?;
        with_room(wanted, |bytes| {
            let count = (bytes as usize / size).clamp(1, most.max(1));
            Ok([self.slot(count, brings_back)?, self.slot(count, brings_back)?])
        })
    }

    fn slot<T: Pod, U: Pod>(&self, count: usize, brings_back: bool) -> Result<Slot<T, U>> {
        let _entered = self.pool.context().enter()?;
        let results = if brings_back { count } else { 0 };
        let input = DeviceBuffer::uninitialized(&self.upload, count)?;
        input.record_stream(&self.work)?;
        let output = DeviceBuffer::uninitialized(&self.work, results)?;
        output.record_stream(&self.download)?;
        let event = || Event::create(self.pool.driver(), EventKind::NoTiming);
        Ok(Slot {
            filled: Stage::Idle(self.pinned.uninitialized(count)?),
            input,
            output,
            results: Stage::Idle(self.pinned.uninitialized(results)?),
            awaited: None,
            uploaded: event()?,
            worked: event()?,
            downloaded: event()?,
        })
    }

    fn run<T: Pod, U: Pod>(
        &self,
        mut source: impl Source<T>,
        most: usize,
        brings_back: bool,
        mut work: impl FnMut(Chunk<'_, T, U>) -> Result<()>,
        mut take: impl FnMut(usize, &[U]) -> Result<()>,
    ) -> Result<Chunks> {
        let _entered = self.pool.context().enter()?;
        let mut slots = self.slots::<T, U>(most, brings_back)?;
        let (capacity, size) = (slots[0].input.len(), size_of::<T>());
        let mut done = Chunks { piece: Bytes::new((capacity * size) as u64), ..Chunks::default() };
        loop {
            let slot = &mut slots[done.pieces as usize % 2];
            let start = done.values as usize;
            let place = PiecePosition {
                number: done.pieces,
                start: (start * size) as u64,
                bytes: (capacity * size) as u64,
            };
            let mut piece = slot.filled.take().map_err(|error| place.failed(error))?;
            let count = source.fill(&mut piece).map_err(|cause| place.failed(cause))?;
            if count == 0 {
                break;
            }
            let place = PiecePosition { bytes: (count * size) as u64, ..place };
            // The results that used this slot before must have left it.
            slot.collect(&mut take)?;
            self.submit(slot, piece, place, count, &mut work).map_err(|error| place.failed(error))?;
            if brings_back {
                slot.awaited = Some((place, start, count));
            }
            done.pieces += 1;
            done.values += count as u64;
        }
        for behind in 0..2 {
            slots[(done.pieces as usize + behind) % 2].collect(&mut take)?;
        }
        self.work.synchronize()?;
        Ok(done)
    }

    /// Submits upload, work and download, each ordered only after what it depends on.
    fn submit<T: Pod, U: Pod>(
        &self,
        slot: &mut Slot<T, U>,
        piece: crate::host::PinnedBuffer<T>,
        place: PiecePosition,
        count: usize,
        work: &mut impl FnMut(Chunk<'_, T, U>) -> Result<()>,
    ) -> Result<()> {
        let Slot { filled, input, output, results, uploaded, worked, downloaded, .. } = slot;
        self.upload.stream().wait(worked)?;
        let mut whole = DeviceSliceMut::new(input.region(), &self.upload);
        *filled = Stage::Busy(piece.copy_to(&mut whole.slice_mut(0..count)?)?);
        uploaded.record(self.upload.stream())?;

        self.work.stream().wait(uploaded)?;
        self.work.stream().wait(downloaded)?;
        let input = DeviceSlice::new(input.region(), &self.work).slice(0..count)?;
        let result_count = count.min(output.len());
        let mut whole = DeviceSliceMut::new(output.region(), &self.work);
        let worked_on = work(Chunk {
            number: place.number,
            input,
            output: whole.slice_mut(0..result_count)?,
            stream: &self.work,
        });
        // Even if the work failed: what it submitted before still uses the piece.
        worked.record(self.work.stream())?;
        worked_on?;

        if result_count > 0 {
            self.download.stream().wait(worked)?;
            let ready = DeviceSlice::new(output.region(), &self.download).slice(0..result_count)?;
            *results = Stage::Busy(results.take()?.copy_from(&ready)?);
            downloaded.record(self.download.stream())?;
        }
        Ok(())
    }
}

impl<T: Pod, U: Pod> Slot<T, U> {
    /// Passes on the pending results, if there are any.
    fn collect(&mut self, take: &mut impl FnMut(usize, &[U]) -> Result<()>) -> Result<()> {
        let Some((place, start, count)) = self.awaited.take() else { return Ok(()) };
        let results = self.results.take().map_err(|error| place.failed(error))?;
        take(start, &results[..count]).map_err(|error| place.failed(error))?;
        self.results = Stage::Idle(results);
        Ok(())
    }
}
