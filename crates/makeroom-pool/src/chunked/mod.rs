//! Data larger than the device, in pieces: copied while the piece before is worked on.
//!
//! ```text
//! host    fill 0 │ fill 1 │ fill 2 │ …          two pinned pieces, filled by several threads
//! upload         │ copy 0 │ copy 1 │ copy 2     a stream of its own
//! work                    │ work 0 │ work 1     the program's own kernels
//! download                         │ copy 0     a stream of its own, the other way of the bus
//! ```
//!
//! Nothing is ever as large as the data: two pieces on the host and two on the device, sized from the room there is.
//! A piece that fails is named; whatever happens, all memory goes back in the order of its streams.

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

/// A piece is at most this large: the bus is as fast as it gets well below.
const LARGEST: u64 = 64 << 20;
/// And at least this.
const SMALLEST: u64 = 256 << 10;
/// All pieces together take at most this part of the room there is.
const PART: u64 = 4;

/// How large pieces may be that are `copies` times on the device: a part of what it and the pool have free.
fn piece_bytes(pool: &Pool, copies: u64) -> Result<u64> {
    let free = pool.context().enter().and_then(|_entered| pool.driver().memory())?.free;
    let room = free.get().saturating_add(pool.stats().cached);
    Ok((room / PART / copies).clamp(SMALLEST, LARGEST))
}

/// Tries smaller pieces until there is room for them.
fn with_room<R>(mut bytes: u64, mut take: impl FnMut(u64) -> Result<R>) -> Result<R> {
    loop {
        match take(bytes) {
            Err(error) if error.is_out_of_memory() && bytes / 2 >= SMALLEST => bytes /= 2,
            answer => return answer,
        }
    }
}

/// A pinned piece: the program's, or a copy's.
#[derive(Debug)]
enum Stage<T: Pod> {
    Idle(PinnedBuffer<T>),
    Busy(InFlight<T>),
    /// Its last copy failed.
    Lost,
}

impl<T: Pod> Stage<T> {
    /// The piece, when its last copy is done.
    fn take(&mut self) -> Result<PinnedBuffer<T>> {
        match std::mem::replace(self, Self::Lost) {
            Self::Idle(buffer) => Ok(buffer),
            Self::Busy(copy) => copy.wait(),
            Self::Lost => Err(PoolError::Forked),
        }
    }
}

/// Where a transfer is.
#[derive(Clone, Copy, Debug)]
struct Place {
    number: u64,
    start: u64,
    bytes: u64,
}

impl Place {
    /// The error of this piece.
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
