//! A CUDA driver in software, built as `libcuda.so.1`: the GPU of tests, CI and demonstrations.
//!
//! A program that loads the driver (`dlopen("libcuda.so.1")`, or linked against it) finds cards of chosen
//! number and size. Memory is really there: copies and fills work. It is refused when a real card refuses it,
//! with the same numbers; `tests/programs/conformance.c` asks some 900 questions, and the answers are those
//! recorded from an H200 with driver 580. Kernels are not run.
//!
//! # What is simulated
//!
//! - **Devices**: number, size, names, UUIDs, the attributes of an H200; **contexts** with their cost,
//!   primary ones, limits with theirs.
//! - **Memory** in pages of 2 MiB: blocks below that share pages and fragment; larger ones have their own.
//!   Device addresses are reserved in the process and not readable by it, as with a real card; every access
//!   through the driver is checked to the byte. Anything outside a live block, or mapped without access, is
//!   `CUDA_ERROR_INVALID_VALUE`.
//! - **Stream-ordered memory**: pools of 32 MiB chunks, thresholds, figures, reuse by stream order.
//! - **Virtual memory**: reservations, handles on cards and on the host, whole mappings, access; host memory that
//!   is mapped for the host too can be read and written there.
//! - **Pinned, registered and managed** host memory, **arrays**, **exchange handles** within the process,
//!   **graphs** with allocation nodes, **stream capture** with the calls it forbids, **memory of other
//!   interfaces**, **multicast objects** as far as their books go, **green contexts** as shares of primary ones.
//! - **Streams and events** on a clock that tests move. Work is done when it is submitted; only its
//!   completion waits.
//! - **Modules, libraries, launches**: any image loads, any name is a function; launch limits are checked.
//! - **Other processes**: all processes with the same folder share the cards, and NVML (`makeroom-simnvml`)
//!   lists them. What a dead process held comes back.
//! - **`cuGetProcAddress`** by version and default stream, from the one table of what there is
//!   (`api/resolve.rs`). A forked child has no driver; after exit every call says so.
//!
//! # What is not
//!
//! Kernels, textures and surfaces, writes through multicast objects, memory exchange between processes,
//! callbacks. Functions for these are not exported: `dlsym` and `cuGetProcAddress` do not find
//! them. Variables of modules are never found. A handle from `cuIpcGetMemHandle`, and a file that was exported, opens
//! in the process that made it, which a real driver refuses for the former, and in no other. `cuGetExportTable` has no tables, so the CUDA
//! runtime (`cudart`) does not start on this driver. The first, 32-bit forms of functions (`cuMemAlloc`
//! without `_v2`) answer as a real driver does to a context of today: 201. Pinned memory is not locked.
//!
//! # Environment
//!
//! `MAKEROOM_SIMGPU=devices=2,memory=8GiB,context=512MiB,fail=cuMemAlloc_v2:3,slow=cuInit:1:500`; all keys and defaults:
//! [`makeroom_simcard::Description`]. `MAKEROOM_SIMGPU_DIR`: the folder that processes must share to share
//! the cards.
//!
//! # For tests
//!
//! [`makeroom_simcard::install`] makes a folder with both libraries. Functions that no real driver has, found
//! with `dlsym`:
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
//! machine/    the model: safe code, plain data   driver.rs   the one driver of the process, start and end
//! api/        the exported functions, thin       call.rs     what every exported function runs inside
//! abi.rs      what crosses the C boundary        backing.rs  the host memory behind frames, and the copies
//! status.rs   results                            faults.rs   calls that are to fail
//! ```
//!
//! No panic crosses the C boundary: `call.rs` catches it and the call returns 999. A build with `panic =
//! "abort"`, such as this workspace's release profile, ends the process instead.

mod abi;
mod api;
mod backing;
mod call;
mod driver;
mod faults;
pub mod machine;
mod status;

pub use status::{Result, Status};
