//! Which device of a recording is explained, and what its source is called.

use std::fmt;

use makeroom_core::{Action, DeviceIndex, DeviceTrace, Trace, TraceKind};

use super::history::History;
use crate::InputKind;

/// The device asked for; else the one that failed first; else the one that held most.
pub(super) fn chosen_device(trace: &Trace, asked: Option<DeviceIndex>) -> Option<&DeviceTrace> {
    if asked.is_some() {
        return trace.device(asked);
    }
    let first_failure = |device: &DeviceTrace| {
        let index = device.events.actions().iter().position(|&action| action == Action::OutOfMemory)?;
        device.events.get(index).map(|event| event.time_us)
    };
    let failed = trace.devices.iter().filter_map(|device| Some((first_failure(device)?, device)));
    if let Some((_, device)) = failed.min_by_key(|(time, _)| *time) {
        return Some(device);
    }
    match trace.devices.as_slice() {
        [only] => Some(only),
        devices => devices
            .iter()
            .max_by_key(|device| (History::new(device, &[]).peak_live, std::cmp::Reverse(device.device))),
    }
}

pub(super) fn input_kind(trace: &Trace) -> InputKind {
    match trace.kind {
        TraceKind::TorchSnapshot => InputKind::TorchSnapshot,
        TraceKind::RmmLog => InputKind::RmmLog,
        TraceKind::Room => InputKind::RoomTrace,
    }
}

/// The framework whose allocations were recorded, as in `--json`; of a whole process only where its tensors were.
pub(super) fn framework(trace: &Trace) -> Option<&'static str> {
    match trace.kind {
        TraceKind::TorchSnapshot => Some("pytorch"),
        TraceKind::RmmLog => Some("rmm"),
        TraceKind::Room => {
            trace.process.as_ref().is_some_and(|process| process.sees_tensors).then_some("pytorch")
        }
    }
}

/// Who took the memory from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// PyTorch's caching allocator.
    PyTorch,
    /// A pool with a limit of its own.
    Pool,
    /// The program itself.
    Program,
}

impl Holder {
    pub(super) fn of_trace(trace: &Trace) -> Self {
        let holds_tensors = match trace.kind {
            TraceKind::TorchSnapshot => true,
            TraceKind::RmmLog => false,
            TraceKind::Room => trace.process.as_ref().is_some_and(|process| process.sees_tensors),
        };
        match trace.settings.pool_limits {
            Some(_) => Self::Pool,
            None if holds_tensors => Self::PyTorch,
            None => Self::Program,
        }
    }
}

/// As the subject of a sentence.
impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::PyTorch => "PyTorch",
            Self::Pool => "the pool",
            Self::Program => "the program",
        })
    }
}
