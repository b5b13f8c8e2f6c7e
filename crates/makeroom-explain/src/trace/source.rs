//! What the source of a recording is called, and who took its memory from the driver.

use makeroom_core::{Framework, Holder, Trace, TraceKind};

use crate::InputKind;

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
