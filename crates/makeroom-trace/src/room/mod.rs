//! The `.room` format: a process's GPU memory operations, written while it runs.
//!
//! A file is append-only and consists of frames with a length and a checksum, so that `kill -9`, a crash or a full
//! disk loses at most the last frame. Each frame contains records of one thread and can be read without the others.
//! Unknown frames, records and event kinds are preserved. `spec/room.md` in the repository specifies the bytes.
//!
//! The recorder uses [`Encoder`] on each thread, [`beginning`] once and [`seal`] for each batch. [`Reader`] returns
//! the frames, and [`makeroom_trace::open`](crate::open) converts a whole file to a trace.

mod buffer;
mod checksum;
mod cursor;
mod decoder;
mod encoder;
mod frame;
mod header;
pub(crate) mod import;
mod kind;
mod layout;
mod lines;
mod live_set;
mod place;
mod reader;
mod record;
mod varint;

pub use decoder::Records;
pub use encoder::Encoder;
pub use frame::{beginning, frame_head, seal, seal_as};
pub use header::Header;
pub use kind::EventKind;
pub use layout::{FRAME_HEAD, LONGEST_EVENT, LONGEST_PAYLOAD, MAGIC, VERSION};
pub use lines::add_lines;
pub use live_set::{LeftOut, LiveSet};
pub use reader::{Frame, Reader, Unread};
pub use record::{
    Compacted, ContextHandle, DeviceDefinition, DeviceSample, DropReason, Dropped, End, EndReason, Event,
    FrameDefinition, FrameNumber, NameNumber, Note, Origin, PoolHandle, Record, Sample, Severity,
    StackNumber, ThreadNumber,
};
