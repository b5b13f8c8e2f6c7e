//! TensorFlow and XLA, which share an allocator: its complaint and dump, tensors that found no memory, the pool taken
//! up front, pinned host memory, handles of CUDA libraries, and XLA's own errors.

pub(in crate::text) mod bfc_dump;
pub(in crate::text) mod device;
pub(in crate::text) mod handles;
pub(in crate::text) mod host;
mod pool_dump;
mod start;
pub(in crate::text) mod tensor;
pub(in crate::text) mod xla;
mod xla_plan;
