//! Shared by commands that take a recording: reading it, choosing a device, and determining the available memory.

use std::io;
use std::path::Path;

use makeroom_core::{Bytes, DeviceIndex, DeviceTrace, Trace};
use makeroom_explain::Room;
use makeroom_sim::Memory;
use makeroom_trace::Input;

use crate::failure::{Failure, STANDARD_INPUT};

/// Reads an input file, or standard input for `-`.
pub(crate) fn read(path: &Path) -> Result<Input, Failure> {
    let input = if path == Path::new("-") {
        makeroom_trace::read(io::stdin().lock())
    } else {
        makeroom_trace::open(path)
    };
    input.map_err(|error| Failure::input(&name(path), error))
}

/// Like [`read`], but passes text on in chunks. Returns `None` if the input was text.
pub(crate) fn read_streaming(path: &Path, on_text: impl FnMut(&[u8])) -> Result<Option<Trace>, Failure> {
    let trace = if path == Path::new("-") {
        makeroom_trace::read_streaming(io::stdin().lock(), on_text)
    } else {
        makeroom_trace::open_streaming(path, on_text)
    };
    trace.map_err(|error| Failure::input(&name(path), error))
}

/// Reads a recording. Text is an error.
pub(crate) fn read_trace(path: &Path) -> Result<Trace, Failure> {
    match read(path)? {
        Input::Trace(trace) => Ok(trace),
        Input::Text(_) => Err(Failure::NotARecording { name: name(path) }),
    }
}

/// The requested device, or the default one.
pub(crate) fn device<'trace>(
    trace: &'trace Trace,
    path: &Path,
    asked: Option<u32>,
) -> Result<&'trace DeviceTrace, Failure> {
    trace.device(asked.map(DeviceIndex)).ok_or_else(|| {
        let present: Vec<String> = trace.devices.iter().map(|device| device.device.to_string()).collect();
        match asked {
            Some(asked) => Failure::NoSuchDevice { name: name(path), asked, present: present.join(", ") },
            None => Failure::EmptyRecording { name: name(path) },
        }
    })
}

/// Returns an error if the recording does not contain PyTorch's allocator.
pub(crate) fn require_pytorch(trace: &Trace, path: &Path, purpose: &'static str) -> Result<(), Failure> {
    makeroom_sim::require_pytorch(trace, purpose)
        .map_err(|error| Failure::NoPytorch { name: name(path), error })
}

/// Whether the program that writes this recording is still running.
pub(crate) fn is_running(trace: &Trace, path: &Path) -> bool {
    let process = trace.process.as_ref().filter(|process| process.end.is_none());
    process.is_some_and(|process| makeroom_holders::is_being_written(path, process.identity.pid))
}

/// The memory available to the allocator, from the options.
pub(crate) fn room(memory: Option<Bytes>, card: Option<Bytes>) -> Room {
    match (memory, card) {
        (Some(limit), _) => Room::Limit(limit),
        (None, Some(card)) => Room::Card(card),
        (None, None) => Room::Unknown,
    }
}

/// The same for a simulation.
pub(crate) fn simulated(room: Room) -> Memory {
    Memory { bytes: room.limit().map(Bytes::get) }
}

/// The name of an input in messages.
pub(crate) fn name(path: &Path) -> String {
    if path == Path::new("-") { STANDARD_INPUT.to_owned() } else { path.display().to_string() }
}
