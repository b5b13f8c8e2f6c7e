//! Allocator models besides PyTorch's, one file each.
//!
//! What they place they place with `makeroom-place`; what is here is when they ask the driver, for how much, and
//! what they do when it refuses. Private pools of CUDA graphs are PyTorch's: these models know one pool.

mod bfc;
mod cuda_async;
mod cupy;
mod ideal;
mod makeroom;
mod numbered;
mod options;
mod planned;
mod rmm_pool;

pub(crate) use bfc::{Bfc, Options as BfcOptions};
pub(crate) use cuda_async::CudaAsync;
pub(crate) use cupy::Cupy;
pub(crate) use ideal::Ideal;
pub(crate) use makeroom::Makeroom;
pub use options::OptionError;
pub(crate) use planned::Planned;
pub(crate) use rmm_pool::{Options as RmmPoolOptions, RmmPool};
