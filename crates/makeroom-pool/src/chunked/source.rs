//! Sources of chunked transfers: a slice, or any reader.

use std::io::{ErrorKind, Read};
use std::mem::size_of;

use bytemuck::Pod;

use crate::error::PieceCause;

/// Below this size one thread copies as fast as several.
const WORTH_THREADS: usize = 4 << 20;
/// More threads do not increase memory bandwidth.
const THREADS: usize = 8;

/// Fills pieces one after another.
pub(super) trait Source<T> {
    /// Fills the start of a piece. Returns the number of values, less than the whole piece only at the end.
    fn fill(&mut self, piece: &mut [T]) -> Result<usize, PieceCause>;
}

/// A slice, copied by several threads: one alone is slower than the bus.
pub(super) struct FromSlice<'data, T>(pub(super) &'data [T]);

impl<T: Pod + Send + Sync> Source<T> for FromSlice<'_, T> {
    fn fill(&mut self, piece: &mut [T]) -> Result<usize, PieceCause> {
        let (now, later) = self.0.split_at(piece.len().min(self.0.len()));
        self.0 = later;
        copy(&mut piece[..now.len()], now);
        Ok(now.len())
    }
}

/// Copies with as many threads as are worthwhile.
pub(super) fn copy<T: Pod + Send + Sync>(to: &mut [T], from: &[T]) {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = cores.min(THREADS);
    if threads < 2 || size_of_val(from) < WORTH_THREADS {
        to.copy_from_slice(from);
        return;
    }
    let share = from.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let mut parts = to.chunks_mut(share).zip(from.chunks(share));
        // This thread copies the last part itself.
        let own = parts.next_back();
        for (to, from) in parts {
            scope.spawn(|| to.copy_from_slice(from));
        }
        if let Some((to, from)) = own {
            to.copy_from_slice(from);
        }
    });
}

/// A reader of consecutive values.
pub(super) struct FromRead<R>(pub(super) R);

impl<R: Read, T: Pod> Source<T> for FromRead<R> {
    fn fill(&mut self, piece: &mut [T]) -> Result<usize, PieceCause> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(piece);
        let mut filled = 0;
        while filled < bytes.len() {
            match self.0.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(PieceCause::Read(error)),
            }
        }
        let size = size_of::<T>();
        match filled.checked_rem(size).unwrap_or(0) {
            0 => Ok(filled.checked_div(size).unwrap_or(0)),
            left => Err(PieceCause::Torn { left, size }),
        }
    }
}
