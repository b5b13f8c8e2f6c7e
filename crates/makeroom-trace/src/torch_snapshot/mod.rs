//! PyTorch's memory snapshot as a trace.
//!
//! A snapshot is a pickled dict of segments, event lists, settings and annotations. It has no version number, so
//! everything is recognized by its keys and may be missing.
//!
//! ```text
//! {segments: [{address, total_size, stream, device, …, frames, blocks: [{address, size, state, …, frames}]}],
//!  device_traces: [[{action, addr, size, stream, time_us, frames}]],      one list per device
//!  allocator_settings: {…}, external_annotations: [{name, stage, device, time_us}],
//!  host_segments: [as segments], host_traces: [as one device's list]}    pinned memory
//! ```
//!
//! No tree is built. The [`heap::SnapshotHeap`] converts each dict, as soon as it is complete, to the object it
//! represents: an event becomes a row of columns, frames and lists of frames become interned handles. [`assemble`]
//! then connects the parts. So a recording of ten million events needs little more memory than its columns and the
//! pickle's memo.

mod additions;
mod assemble;
mod closing;
mod heap;
mod lists;
mod object;
mod record;
mod words;

use std::io::Read;

use makeroom_core::Trace;

use crate::check;
use crate::error::Error;
use crate::pickle::{self, Product};

/// Reads a snapshot. Also returns its length.
pub(crate) fn read(stream: impl Read) -> Result<(Trace, u64), Error> {
    let mut heap = heap::SnapshotHeap::default();
    let Product { top, length } = pickle::run(stream, &mut heap)?;
    let mut trace = assemble::assemble(heap, top, length)?;
    check::check(&mut trace);
    Ok((trace, length))
}
