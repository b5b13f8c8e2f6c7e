//! Which device of a recording is explained, and what its source is called.

use makeroom_core::{Action, DeviceIndex, DeviceTrace, Framework, Holder, Trace, TraceKind};

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
        TraceKind::JaxProfile => InputKind::JaxProfile,
    }
}

/// The framework whose allocations were recorded; of a whole process only where its tensors were.
pub(super) fn framework(trace: &Trace) -> Framework {
    match trace.kind {
        TraceKind::TorchSnapshot => Framework::PyTorch,
        TraceKind::RmmLog => Framework::Rmm,
        TraceKind::JaxProfile => Framework::Jax,
        TraceKind::Room if trace.process.as_ref().is_some_and(|process| process.sees_tensors) => {
            Framework::PyTorch
        }
        TraceKind::Room => Framework::Unknown,
    }
}

/// Who took the memory from the driver.
pub(super) fn holder(trace: &Trace) -> Holder {
    match trace.settings.pool_limits {
        Some(_) => Holder::Pool,
        None if framework(trace) == Framework::PyTorch => Holder::PyTorch,
        None => Holder::Program,
    }
}
