//! The `.room` file: what a process asked of its GPUs, written while it runs.
//!
//! A file is append-only and consists of frames with a length and a checksum, so that whatever ends the process
//! (`kill -9`, a crash, a full disk) costs at most the last frame. A frame holds the records of one thread, and
//! each frame can be read without the others. Unknown frames, records and kinds of events are kept. `spec/room.md`
//! in the repository draws the bytes.
//!
//! The recorder uses [`Encoder`] on each thread, [`beginning`] once and [`seal`] for each batch.
//! [`Reader`] gives the frames back, and [`makeroom_trace::open`](crate::open) turns a whole file into a trace.

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
pub use reader::{Frame, Reader, Unread};
pub use record::{
    ContextHandle, DeviceDefinition, DeviceSample, DropReason, Dropped, End, EndReason, Event,
    FrameDefinition, FrameNumber, NameNumber, Note, Origin, PoolHandle, Record, Sample, Severity,
    StackNumber, ThreadNumber,
};
