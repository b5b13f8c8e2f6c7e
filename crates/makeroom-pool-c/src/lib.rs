//! The C interface of the pool: `libmakeroom_pool.so` and `libmakeroom_pool.a`, documented in `include/makeroom.h`.
//!
//! Guarantees at this boundary:
//!
//! - **Nothing unwinds out of it, nothing ends the host.** Every function runs under `catch_unwind`; a panic becomes
//!   [`abi::INTERNAL`] with its text. The one exception is intended: PyTorch's allocator can report a failure only by
//!   its own C++ exception, which `torch/raise.rs` has PyTorch throw.
//! - **Arguments are checked.** Pools are numbers looked up in a table, not pointers, so a wrong or old one is an
//!   error; so is null where an out-parameter is required. A pointer that is neither null nor valid cannot be
//!   detected.
//! - **A forked child gets an error**, without taking a lock that another thread of its parent may have held.
//! ```text
//! abi.rs       structures and status codes of the header         caller.rs    the caller's return address
//! pool.rs      the functions for pools                           registry.rs  pools by number
//! entry.rs     a pool with its layers                            options.rs   structures that may grow
//! failure.rs   the guard around every function, last error       torch/       PyTorch's pluggable allocator
//! table.rs hazard.rs barrier.rs   a table with hazard pointers
//! ```

mod abi;
mod barrier;
mod caller;
mod entry;
mod failure;
mod hazard;
mod options;
mod pool;
mod registry;
mod sync;
mod table;
mod torch;
