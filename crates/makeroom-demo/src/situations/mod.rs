//! The situations, one per file.

pub(crate) mod context_left_behind;
pub(crate) mod fragmentation;
pub(crate) mod kernel_heap;
pub(crate) mod large_batch;
pub(crate) mod missing_free;
pub(crate) mod other_process;
pub(crate) mod pinned_memory;
pub(crate) mod stream_ordered_frees;
pub(crate) mod two_frameworks;
