//! The messages that tell a failure of a process from the consequences of another one's.
//!
//! Matching ignores case. Only phrases that libraries and launchers print themselves are listed: words such as
//! "timeout" alone appear in ordinary output.

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

use crate::tables::FailureKind;

const PHRASES: [(&str, FailureKind); 39] = [
    // The kernel, Slurm and Kubernetes kill for host memory.
    ("oom-kill event", FailureKind::HostMemory),
    ("oom_kill event", FailureKind::HostMemory),
    ("out of memory: killed process", FailureKind::HostMemory),
    ("memory cgroup out of memory", FailureKind::HostMemory),
    ("exceeded memory limit", FailureKind::HostMemory),
    ("oomkilled", FailureKind::HostMemory),
    // NCCL and gloo, when another rank does not arrive.
    ("caught collective operation timeout", FailureKind::CollectiveTimeout),
    ("collective operation timed out", FailureKind::CollectiveTimeout),
    ("ran for longer than the timeout", FailureKind::CollectiveTimeout),
    ("timed out waiting for recv", FailureKind::CollectiveTimeout),
    ("ms for recv operation to complete", FailureKind::CollectiveTimeout),
    ("ms for send operation to complete", FailureKind::CollectiveTimeout),
    ("monitoredbarrier", FailureKind::CollectiveTimeout),
    ("due to processgroupnccl watchdog hang", FailureKind::CollectiveTimeout),
    ("watchdog got stuck for", FailureKind::CollectiveTimeout),
    // The same, when another rank has ended.
    ("connection closed by peer", FailureKind::PeerLost),
    ("connection reset by peer", FailureKind::PeerLost),
    ("ncclremoteerror", FailureKind::PeerLost),
    ("remote process exited", FailureKind::PeerLost),
    ("nccl communicator was aborted", FailureKind::PeerLost),
    ("socket closed by remote peer", FailureKind::PeerLost),
    ("failed to recv, got 0 bytes", FailureKind::PeerLost),
    ("tcpstore: broken pipe", FailureKind::PeerLost),
    ("broken pipe (errno", FailureKind::PeerLost),
    // JAX, when another process does not send heartbeats.
    ("stopped sending heartbeats", FailureKind::PeerLost),
    ("jax distributed service detected fatal errors", FailureKind::PeerLost),
    // Launchers and schedulers that end the other ranks.
    ("closing signal sigterm", FailureKind::Terminated),
    ("signal 15 (sigterm)", FailureKind::Terminated),
    ("received sigterm", FailureKind::Terminated),
    ("received 15 death signal", FailureKind::Terminated),
    ("terminated by signal 15", FailureKind::Terminated),
    ("signals.sigterm", FailureKind::Terminated),
    // Slurm: `*** STEP 77.0 ON node7 CANCELLED AT …`, for a time limit, a preemption or another task.
    ("slurmstepd: error: *** step", FailureKind::Terminated),
    ("slurmstepd: error: *** job", FailureKind::Terminated),
    ("srun: job step aborted", FailureKind::Terminated),
    ("killing subprocess", FailureKind::Terminated),
    ("received sigint", FailureKind::Terminated),
    // SIGKILL without a reason.
    ("signal 9 (sigkill)", FailureKind::Killed),
    ("signals.sigkill", FailureKind::Killed),
];

/// The kinds of failure that a line reports, each once.
pub(super) fn kinds(line: &[u8]) -> Vec<FailureKind> {
    static SEARCH: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let build = || {
        let phrases = PHRASES.map(|(phrase, _)| phrase);
        AhoCorasick::builder().ascii_case_insensitive(true).build(phrases).ok()
    };
    let Some(search) = SEARCH.get_or_init(build) else { return Vec::new() };
    let mut kinds: Vec<FailureKind> =
        search.find_iter(line).map(|found| PHRASES[found.pattern().as_usize()].1).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_libraries_and_launchers_are_told_apart() {
        for (line, kind) in [
            (
                "[E1] [PG 0 Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=81)",
                FailureKind::CollectiveTimeout,
            ),
            (
                "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.8]:9123",
                FailureKind::PeerLost,
            ),
            ("W0101 Sending process 4711 closing signal SIGTERM", FailureKind::Terminated),
            (
                "[F1] [PG ID 0 PG GUID 0(default_pg) Rank 1] Terminating the process after attempting to dump debug \
                 info, due to ProcessGroupNCCL watchdog hang.",
                FailureKind::CollectiveTimeout,
            ),
            ("slurmstepd: error: Detected 1 oom_kill event in StepId=77.0.", FailureKind::HostMemory),
            ("traceback : Signal 9 (SIGKILL) received by PID 4711", FailureKind::Killed),
        ] {
            assert_eq!(kinds(line.as_bytes()), [kind], "{line}");
        }
        assert!(kinds(b"epoch 3: loss 2.71, timeout set to 600 s, peers 8").is_empty());
    }
}
