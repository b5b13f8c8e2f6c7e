//! Allocator models besides PyTorch's, one file each.
//!
//! They place blocks with `makeroom-place`. These files implement when they call the driver, for how much memory, and
//! what they do when it fails. Private pools of CUDA graphs exist only in PyTorch: these models have one pool.

mod bfc;
mod cuda_async;
mod cupy;
mod ideal;
mod largest;
mod makeroom;
mod options;
mod paged;
mod planned;
mod rmm_pool;
mod slots;

pub(crate) use bfc::{Bfc, Options as BfcOptions};
pub(crate) use cuda_async::CudaAsync;
pub(crate) use cupy::Cupy;
pub(crate) use ideal::Ideal;
pub(crate) use makeroom::Makeroom;
pub use options::OptionError;
pub(crate) use paged::PagedPytorch;
pub(crate) use planned::Planned;
pub(crate) use rmm_pool::{Options as RmmPoolOptions, RmmPool};
