//! Reads recordings of GPU memory into the trace model of `makeroom-core`.
//!
//! Three kinds are known: makeroom's own `.room` files, the memory snapshots of PyTorch, which are Python pickles,
//! and the CSV logs of RMM. The first is also written here, see [`room`].
//! [`open`] decides by content what a file is, never by its name, and looks through gzip and zstd. What looks
//! like text and is no recording is handed back as [`Input::Text`]: a log with an error message in it, for the
//! caller to interpret.
//!
//! Files are not trusted. Unpickling in Python runs whatever the file asks for; here nothing in a file is ever
//! executed, a file that asks for it is refused by name, memory is bounded by what the file really holds, and a
//! torn or hostile file gets one error that names the byte.
//!
//! The parts: `input` finds out what a stream holds and decompresses it; `pickle` is a machine for the opcodes
//! that carry data; `torch_snapshot` is what that machine builds instead of Python objects; `room` writes and reads
//! `.room` files; `rmm_log` reads the CSV; `check` looks at the result.
#![forbid(unsafe_code)]

mod check;
mod compressed;
mod error;
mod input;
mod pickle;
mod rmm_log;
pub mod room;
mod text;
mod torch_snapshot;

pub use error::Error;
pub use input::{Input, open, open_streaming, read, read_streaming};
