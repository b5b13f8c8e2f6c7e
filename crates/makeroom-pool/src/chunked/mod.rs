//! Data larger than the device, in pieces: each is copied while the previous one is processed (double buffering).
//!
//! ```text
//! host    fill 0 │ fill 1 │ fill 2 │ …          two pinned pieces, filled by several threads
//! upload         │ copy 0 │ copy 1 │ copy 2     its own stream
//! work                    │ work 0 │ work 1     the program's own kernels
//! download                         │ copy 0     its own stream, in the other direction of the bus
//! ```
//!
//! No buffer is as large as the data: two pieces on the host and two on the device, sized by the free memory. An
//! error names the piece that failed; whatever happens, all memory is freed in stream order.

mod map;
mod source;
mod upload;

pub use map::{Chunk, ChunkedMap, Chunks};
pub use upload::ChunkedUpload;

use bytemuck::Pod;
use makeroom_core::Bytes;

use crate::allocator::Allocator as _;
use crate::error::{PieceCause, PieceError, PoolError, Result};
use crate::host::{InFlight, PinnedBuffer};
use crate::pool::Pool;

/// Maximum size of a piece: the bus reaches full speed well below this.
const LARGEST: u64 = 64 << 20;
/// Minimum size of a piece.
const SMALLEST: u64 = 256 << 10;
/// All pieces together use at most this fraction of the free memory (1/4).
const PART: u64 = 4;

/// Size of pieces of which `copies` are on the device: a fraction of the memory free there and in the pool.
fn piece_bytes(pool: &Pool, copies: u64) -> Result<u64> {
    let free = pool.context().enter().and_then(|_entered| pool.driver().memory())?.free;
    let room = free.get().saturating_add(pool.stats().cached);
    Ok((room / PART / copies).clamp(SMALLEST, LARGEST))
}

/// Halves the size of pieces until they fit.
fn with_room<R>(mut bytes: u64, mut take: impl FnMut(u64) -> Result<R>) -> Result<R> {
    loop {
        match take(bytes) {
            Err(error) if error.is_out_of_memory() && bytes / 2 >= SMALLEST => bytes /= 2,
            answer => return answer,
        }
    }
}

/// A pinned piece: idle, or in use by a copy.
#[derive(Debug)]
enum Stage<T: Pod> {
    Idle(PinnedBuffer<T>),
    Busy(InFlight<T>),
    /// Its last copy failed.
    Lost,
}

impl<T: Pod> Stage<T> {
    /// Takes the piece, after its last copy is done.
    fn take(&mut self) -> Result<PinnedBuffer<T>> {
        match std::mem::replace(self, Self::Lost) {
            Self::Idle(buffer) => Ok(buffer),
            Self::Busy(copy) => copy.wait(),
            Self::Lost => Err(PoolError::Forked),
        }
    }
}

/// Position of a piece in the transfer.
#[derive(Clone, Copy, Debug)]
struct PiecePosition {
    number: u64,
    start: u64,
    bytes: u64,
}

impl PiecePosition {
    /// The error for this piece.
    fn failed(self, cause: impl Into<PieceCause>) -> PoolError {
        let Self { number, start, bytes } = self;
        PoolError::Piece(Box::new(PieceError {
            number,
            start,
            bytes: Bytes::new(bytes),
            cause: cause.into(),
        }))
    }
}

impl From<PoolError> for PieceCause {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

impl From<makeroom_cuda::Error> for PieceCause {
    fn from(error: makeroom_cuda::Error) -> Self {
        Self::Pool(error.into())
    }
}
