//! How a process fared, from its end and its failures.

use super::select::Process;
use crate::report::RankFate;
use crate::tables::{End, FailureKind};

/// SIGHUP, SIGINT and SIGTERM: sent by launchers and people.
const ASKED_TO_END: [u32; 3] = [1, 2, 15];
const SIGKILL: u32 = 9;
/// The exit status of a process that handles a signal is by convention this plus the signal.
const BY_SIGNAL: u32 = 128;

/// How a process fared.
pub(super) fn fate(process: &Process<'_>) -> RankFate {
    let decisive = process.decisive().map(|failure| failure.kind);
    match (process.end, decisive) {
        (End::Exited(0), _) if process.has_failed_allocations() => RankFate::Caught,
        (End::Exited(0), _) => RankFate::Finished,
        (_, Some(FailureKind::HostMemory)) | (End::Killed | End::Signaled(SIGKILL), None) => RankFate::Killed,
        (_, Some(_)) => RankFate::RanOut,
        // A rank whose main thread failed often waits for other threads until the launcher ends it.
        _ if process.reports(FailureKind::Other) => RankFate::Failed,
        (End::Running, None) => RankFate::Running,
        (End::Signaled(signal), None) if ASKED_TO_END.contains(&signal) => RankFate::Terminated,
        (End::Exited(status), None) if ASKED_TO_END.iter().any(|signal| BY_SIGNAL + signal == status) => {
            RankFate::Terminated
        }
        (End::Signaled(_) | End::Exited(_) | End::Unknown, None) => {
            if process.reports(FailureKind::CollectiveTimeout) {
                RankFate::CollectiveTimeout
            } else if process.reports(FailureKind::PeerLost) {
                RankFate::PeerLost
            } else if process.reports(FailureKind::Terminated) {
                RankFate::Terminated
            } else if process.reports(FailureKind::Killed) || process.reports(FailureKind::Died) {
                RankFate::Killed
            } else if process.end != End::Unknown || process.reports(FailureKind::ExitCode) {
                RankFate::Failed
            } else if process.has_failed_allocations() {
                RankFate::Caught
            } else {
                RankFate::Unknown
            }
        }
    }
}
