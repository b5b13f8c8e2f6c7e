//! A CUDA driver in software, built as `libcuda.so.1`: the GPU of tests, CI and demonstrations.
//!
//! A program that loads the driver (`dlopen("libcuda.so.1")`, or linked against it) finds GPUs of configurable number
//! and size. Their memory is real: copies and fills work. Allocations fail when they would on a real GPU, with the
//! same errors: `tests/programs/conformance.c` makes about 900 calls, and the results match those recorded on an H200
//! with driver 580. Kernels are not run.
//!
//! # What is simulated
//!
//! - **Devices**: number, size, names, UUIDs, the attributes of an H200; **contexts** with their memory, primary
//!   contexts, limits with their memory.
//! - **Memory** in pages of 2 MiB: smaller blocks share pages and fragment; larger ones have their own pages. As with a
//!   real GPU, the process cannot read device addresses. Every access through the driver is checked to the byte: an
//!   access outside a live block, or to a mapping without access, is `CUDA_ERROR_INVALID_VALUE`.
//! - **Stream-ordered memory**: pools of 32 MiB chunks, thresholds, statistics, reuse in stream order.
//! - **Virtual memory**: reservations, handles on GPUs and on the host, whole mappings, access; host memory that is
//!   mapped for the host too can be accessed there.
//! - **Pinned, registered and managed** host memory, **arrays**, **IPC handles** within the process, **graphs** with
//!   allocation nodes, **stream capture** with the calls it forbids, **memory of other APIs**, the bookkeeping of
//!   **multicast objects**, **green contexts** as shares of primary contexts.
//! - **Streams and events** on a clock that tests control. Work is done when it is submitted; only its completion is
//!   delayed.
//! - **Modules, libraries, launches**: any image loads, any name is a function; launch limits are checked.
//! - **Other processes**: all processes with the same directory share the GPUs, and NVML (`makeroom-simnvml`) lists
//!   them. Memory of a dead process is freed.
//! - **`cuGetProcAddress`** by version and default stream, from a single table of functions (`api/resolve.rs`). A
//!   forked child has no driver; after exit, every call fails.
//!
//! # What is not
//!
//! Kernels, textures and surfaces, writes through multicast objects, sharing memory between processes, callbacks.
//! Functions for these are not exported: `dlsym` and `cuGetProcAddress` do not find them. Module variables are never
//! found. A handle from `cuIpcGetMemHandle` or an exported file can be opened only in the process that created it; a
//! real driver rejects the former there. `cuGetExportTable` has no tables, so the CUDA runtime (`cudart`) does not
//! start on this driver. The original 32-bit functions (`cuMemAlloc` without `_v2`) return 201, as a real driver does
//! for a current context. Pinned memory is not locked.
//!
//! # Environment
//!
//! `MAKEROOM_SIMGPU=devices=2,memory=8GiB,context=512MiB,fail=cuMemAlloc_v2:3,slow=cuInit:1:500`; all keys and
//! defaults are at [`makeroom_simcard::Description`]. `MAKEROOM_SIMGPU_DIR`: processes with the same directory share
//! their GPUs.
//!
//! # For tests
//!
//! [`makeroom_simcard::install`] creates a directory with both libraries. Functions that no real driver has, to be
//! found with `dlsym`:
//!
//! ```c
//! int makeroom_simgpu_advance(unsigned long long nanoseconds); /* moves the clock */
//! unsigned long long makeroom_simgpu_now(void); /* reads it */
//! int makeroom_simgpu_enqueue_work(void *stream, unsigned long long nanoseconds); /* keeps a stream busy */
//! int makeroom_simgpu_fail(const char *function, unsigned long long n, int error); /* fails the n-th call from now */
//! unsigned long long makeroom_simgpu_forget_faults(void); /* forgets calls that have not come; how many */
//! ```
//!
//! # Order of the source
//!
//! ```text
//! machine/    the model: safe code, plain data   driver.rs   the driver of the process, initialization and shutdown
//! api/        the exported functions, thin       call.rs     the wrapper of every exported function
//! abi.rs      the C boundary                     backing.rs  the host memory behind frames, and copies
//! status.rs   error codes                        faults.rs   injected faults and delays
//! ```
//!
//! No panic crosses the C boundary: `call.rs` catches it, and the call returns 999. A build with `panic = "abort"`,
//! such as this workspace's release profile, ends the process instead.

mod abi;
mod api;
mod backing;
mod call;
mod driver;
mod faults;
pub mod machine;
mod status;

pub use status::{Result, Status};
