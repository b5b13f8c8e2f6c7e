//! The pool for C: `libmakeroom_pool.so` and `libmakeroom_pool.a`, described by `include/makeroom.h`.
//!
//! What holds at this boundary:
//!
//! - **Nothing unwinds out of it, nothing ends the host.** Every function runs under `catch_unwind`; a panic is
//!   [`abi::INTERNAL`] with its text. The one exception is asked for: PyTorch's allocator cannot be told of a failure
//!   except by its own C++ exception, which `torch/raise.rs` lets PyTorch throw.
//! - **Arguments are answered.** Pools are numbers looked up in a table, not pointers, so a wrong or old one is an
//!   error; null where a place is needed is one too. A pointer that is neither null nor valid cannot be told.
//! - **A forked child gets an answer**, without a lock that another thread of its parent may have held.
//!
//! ```text
//! abi.rs       structures and status numbers of the header       caller.rs    who called, from the return address
//! pool.rs      the functions about pools                         registry.rs  pools by number
//! entry.rs     a pool with its layers                            options.rs   structures that may grow
//! failure.rs   the guard around every function, last error       torch/       what PyTorch's pluggable allocator takes
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
