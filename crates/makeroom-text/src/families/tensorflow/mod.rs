//! TensorFlow and XLA, which share an allocator: its complaint and dump, tensors that found no memory, the pool taken
//! up front, pinned host memory, handles of CUDA libraries, and XLA's own errors.

pub(crate) mod bfc_dump;
pub(crate) mod device;
pub(crate) mod handles;
pub(crate) mod host;
mod pool_dump;
mod start;
pub(crate) mod tensor;
pub(crate) mod xla;
mod xla_plan;
