//! A GPU memory pool that does not fragment.
//!
//! The policy (`makeroom_place::pool`) is the one that the simulator runs; this crate gives it real memory, threads,
//! events and types. Memory is freed on every path, in stream order:
//!
//! ```no_run
//! use makeroom_cuda::Driver;
//! use makeroom_pool::{DeviceBuffer, Options, Pool};
//!
//! # fn main() -> Result<(), makeroom_pool::PoolError> {
//! let pool = Pool::new(Driver::load()?, 0, Options::default())?;
//! pool.make_current()?;
//! let stream = pool.stream()?;
//! let squares: Vec<f32> = (0..1024).map(|n| (n * n) as f32).collect();
//! let buffer = DeviceBuffer::from_host(&stream, &squares)?;
//! assert_eq!(buffer.to_host()?, squares);
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! pool.rs inner.rs core.rs  the policy on memory    allocator.rs  the trait of the pool and of every layer
//! backing.rs    the policy's requests as driver calls  layers/     limit, track, spill, check, failure callback
//! fences.rs      fences: the GPU's progress          stream.rs  buffer.rs  slice.rs   typed, owned memory
//! fork.rs       protection in forked children       site.rs  drop_site.rs  error.rs   call sites and errors
//! host/         host memory that the device reaches  torch_snapshot/   a pool as PyTorch's memory snapshot
//! pages/        pages under PyTorch's own allocator
//! with_cudarc.rs   cudarc's streams and views on the pool's memory (feature `cudarc`)
//! arenas.rs  contention.rs  recent_use.rs  blocks.rs   many threads   chunked/   data larger than the device, in pieces
//! ```

mod allocator;
mod arenas;
mod backing;
mod blocks;
mod buffer;
mod chunked;
mod contention;
mod core;
#[cfg(feature = "drop-sites")]
mod drop_site;
mod error;
mod fences;
mod fork;
mod host;
mod inner;
pub mod layers;
mod pages;
mod pool;
mod prefetch;
mod recent_use;
mod site;
mod slice;
mod stream;
mod torch_snapshot;
#[cfg(feature = "cudarc")]
mod with_cudarc;

pub use allocator::{Allocator, EVERY_STREAM};
pub use backing::Watcher;
pub use buffer::DeviceBuffer;
pub use chunked::{Chunk, ChunkedMap, ChunkedUpload, Chunks};
pub use error::{OutOfMemory, PieceCause, PieceError, PoolError, Result, WrongAddress};
pub use host::{InFlight, PinnedBuffer, PinnedPool};
pub use pages::{Pages, PagesOptions, PagesStats, Taken, is_token};
pub use pool::{Options, Pool};
#[doc(hidden)]
pub use prefetch::prefetch;
pub use site::Site;
pub use slice::{DeviceSlice, DeviceSliceMut};
pub use stream::PoolStream;
pub use torch_snapshot::{SnapshotOf, write_torch_snapshot};
#[cfg(feature = "cudarc")]
pub use with_cudarc::{CudarcBuffer, CudarcStream};

pub use makeroom_place::pool::{BlockState, Counters, Handle, Piece, Snapshot, Stats};
