//! The row of a process in a log, and the kind of failure that its text shows.

use makeroom_core::Bytes;
use makeroom_core::identity::JobIdentity;
use makeroom_explain::{Cause, Explanation};

use super::{MOST_FIXES, first_fixes};
use crate::tables::{DeviceRow, End, FailureKind, RecordingKind, RecordingRow};

/// The kind of failure that an explanation stands for.
pub(super) fn failure_kind(explanation: &Explanation) -> Option<FailureKind> {
    match explanation.verdict.cause {
        Cause::None => None,
        Cause::HostMemory => Some(FailureKind::HostMemory),
        // The message is not about memory, or does not say which.
        Cause::Undetermined if explanation.request.is_none() => None,
        _ => Some(FailureKind::DeviceMemory),
    }
}

/// The row of a process of which a log is known.
pub(super) fn row(
    recording: String,
    identity: &JobIdentity,
    end: End,
    explanation: Option<&Explanation>,
) -> RecordingRow {
    let ledger = explanation.and_then(|explanation| explanation.ledger.as_ref());
    let device = explanation.and_then(|explanation| explanation.request.as_ref()?.device);
    let device = device.map(|device| DeviceRow {
        device: device.0,
        total_bytes: ledger.and_then(makeroom_explain::Ledger::total).map(Bytes::get),
        is_used: true,
        ..DeviceRow::default()
    });
    let fixes = explanation.map_or(&[][..], first_fixes);
    RecordingRow {
        recording,
        kind: RecordingKind::Log,
        rank: identity.rank,
        local_rank: identity.local_rank,
        world_size: identity.world_size,
        host: identity.node.clone().or_else(|| identity.host.clone()),
        node_rank: identity.node_rank,
        job: identity.job_id.clone(),
        attempt: identity.attempt,
        replica: identity.part(),
        run: None,
        pid: None,
        parent_pid: None,
        program: None,
        framework: explanation.and_then(|explanation| explanation.input.framework.id()).map(str::to_owned),
        began_us: None,
        ended_us: None,
        silence_us: None,
        end,
        torn_bytes: 0,
        events: 0,
        is_incomplete: false,
        devices: device.into_iter().collect(),
        host_peak_bytes: None,
        cgroup_bytes: None,
        cgroup_limit_bytes: None,
        is_first_failure: false,
        error: None,
        cause: explanation.map_or("none", |explanation| explanation.verdict.cause.name()).to_owned(),
        certainty: explanation
            .map_or("certain", |explanation| explanation.verdict.certainty.name())
            .to_owned(),
        summary: explanation.map_or_else(String::new, |explanation| explanation.verdict.summary.clone()),
        fixes: fixes.iter().take(MOST_FIXES).map(|fix| (fix.action.clone(), fix.command.clone())).collect(),
    }
}
