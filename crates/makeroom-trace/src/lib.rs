//! Reads recordings of GPU memory into the trace model of `makeroom-core`.
//!
//! Four formats are supported: makeroom's own `.room` files, PyTorch's memory snapshots, which are Python pickles,
//! RMM's CSV logs, and JAX's device memory profiles. `.room` files are also written here, see [`room`]. [`open`] detects the format by content,
//! never by file name, and decompresses gzip and zstd. Other text is returned as [`Input::Text`]: a log that may
//! contain an error message, for the caller to interpret.
//!
//! Files are not trusted. Python runs any code that a pickle calls; this crate executes nothing, and a file that
//! contains a call is an error with the name of the callable. Memory is bounded by the file's actual content, and a
//! truncated or hostile file is an error with a byte offset.
//!
//! ```
//! use makeroom_core::TraceKind;
//! use makeroom_trace::{Input, read};
//!
//! let log = "Thread,Time,Action,Pointer,Size,Stream\n\
//!     1,10:00:00.000001,allocate,0x7f0000000000,1048576,0x0\n\
//!     1,10:00:00.000002,free,0x7f0000000000,1048576,0x0\n";
//! let Input::Trace(trace) = read(log.as_bytes())? else { panic!("not a recording") };
//! assert_eq!((trace.kind, trace.devices.len()), (TraceKind::RmmLog, 1));
//! # Ok::<(), makeroom_trace::Error>(())
//! ```
//!
//! [`visit_archive`] reads the files in a tar or zip archive.
//!
//! Modules: `input` detects formats and decompresses; `pickle` is a machine for the opcodes that carry data;
//! `torch_snapshot` is the heap that it fills instead of Python objects; `room` writes and reads `.room` files;
//! `rmm_log` reads the CSV; `jax_profile` reads pprof (`protobuf`); `check` checks the result. [`protocol`] is how a recorded process talks to `makeroom run`.
#![forbid(unsafe_code)]

mod archive;
mod check;
mod compressed;
mod error;
mod input;
mod jax_profile;
mod pickle;
mod protobuf;
pub mod protocol;
mod rmm_log;
pub mod room;
mod text;
mod torch_snapshot;

/// Maximum number of devices; files with more are crafted to exhaust memory.
const MOST_DEVICES: usize = 1024;

pub use archive::{Visit, is_archive_name, visit_archive};
pub use error::Error;
pub use input::{Input, open, open_streaming, read, read_streaming};
