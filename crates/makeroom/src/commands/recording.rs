//! What commands that take a recording share: reading it, choosing its device, saying how much room there is.

use std::fs::File;
use std::io;
use std::path::Path;

use makeroom_core::{Bytes, DeviceIndex, DeviceTrace, Trace};
use makeroom_explain::Room;
use makeroom_sim::Memory;
use makeroom_trace::Input;
use rustix::fs::{FileType, Mode, OFlags, fstat, stat};
use rustix::io::Errno;

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

/// Reads an input file, or standard input for `-`. Text is passed on in pieces; `None`: it was text.
pub(crate) fn read_streaming(path: &Path, on_text: impl FnMut(&[u8])) -> Result<Option<Trace>, Failure> {
    let trace = if path == Path::new("-") {
        makeroom_trace::read_streaming(io::stdin().lock(), on_text)
    } else {
        makeroom_trace::open_streaming(path, on_text)
    };
    trace.map_err(|error| Failure::input(&name(path), error))
}

/// Reads a recording; a text is none.
pub(crate) fn read_trace(path: &Path) -> Result<Trace, Failure> {
    match read(path)? {
        Input::Trace(trace) => Ok(trace),
        Input::Text(_) => Err(Failure::NotARecording { name: name(path) }),
    }
}

/// Reads a recording whose name a program reported. It may name anything, so only a plain file is read, and no open waits.
pub(crate) fn read_reported(path: &Path) -> Result<Trace, Failure> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let failed = |error: Errno| makeroom_trace::Error::Open { path: path.to_owned(), cause: error.into() };
    // A look first: opening a device may have effects.
    let is_plain = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
    if !is_plain(stat(path).map_err(failed).map_err(Failure::Open)?.st_mode) {
        return Err(Failure::NotAPlainFile { name: name(path) });
    }
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(failed).map_err(Failure::Open)?;
    if !is_plain(fstat(&file).map_err(failed).map_err(Failure::Open)?.st_mode) {
        return Err(Failure::NotAPlainFile { name: name(path) });
    }
    match makeroom_trace::read(File::from(file)).map_err(|error| Failure::input(&name(path), error))? {
        Input::Trace(trace) => Ok(trace),
        Input::Text(_) => Err(Failure::NotARecording { name: name(path) }),
    }
}

/// The device a command is about.
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

/// Refuses a recording that has no allocator of PyTorch, where that is what is asked about.
pub(crate) fn require_pytorch(trace: &Trace, path: &Path, purpose: &'static str) -> Result<(), Failure> {
    makeroom_sim::require_pytorch(trace, purpose)
        .map_err(|error| Failure::NoPytorch { name: name(path), error })
}

/// Whether the program still runs that writes a recording.
pub(crate) fn is_running(trace: &Trace, path: &Path) -> bool {
    let process = trace.process.as_ref().filter(|process| process.end.is_none());
    process.is_some_and(|process| makeroom_holders::is_being_written(path, process.identity.pid))
}

/// How much room there is, from the options.
pub(crate) fn room(memory: Option<Bytes>, card: Option<Bytes>) -> Room {
    match (memory, card) {
        (Some(limit), _) => Room::Limit(limit),
        (None, Some(card)) => Room::Card(card),
        (None, None) => Room::Unknown,
    }
}

/// The same for a simulated run.
pub(crate) fn simulated(room: Room) -> Memory {
    Memory { bytes: room.limit().map(Bytes::get) }
}

/// What to call an input in messages.
pub(crate) fn name(path: &Path) -> String {
    if path == Path::new("-") { STANDARD_INPUT.to_owned() } else { path.display().to_string() }
}
