//! The line in which a scheduler reports that it ended a job:
//!
//! ```text
//! slurmstepd: error: *** STEP 77.0 ON node7 CANCELLED AT 2026-01-05T10:14:11 DUE TO TIME LIMIT ***
//! slurmstepd: error: *** JOB 77 ON node7 CANCELLED AT 2026-01-05T10:14:11 ***
//! =>> PBS: job killed: walltime 3605 exceeded limit 3600
//! TERM_RUNLIMIT: job killed after reaching LSF run time limit.
//! ```
//!
//! Slurm prints the line without a reason also after a task has failed, so that line alone does not show what ended the job.

use crate::tables::StopReason;

/// Phrases after `CANCELLED AT`, in upper case.
const SLURM: [(&str, StopReason); 5] = [
    ("TIME LIMIT", StopReason::TimeLimit),
    ("PREEMPTION", StopReason::Preemption),
    ("NODE FAILURE", StopReason::NodeFailure),
    ("REQUEUE", StopReason::Requeue),
    (" BY ", StopReason::User),
];

/// Phrases of other schedulers.
const OTHERS: [(&str, StopReason); 10] = [
    ("TERM_RUNLIMIT", StopReason::TimeLimit),
    ("TERM_PREEMPT", StopReason::Preemption),
    ("TERM_OWNER", StopReason::User),
    ("TERM_ADMIN", StopReason::User),
    ("PBS: job killed: walltime", StopReason::TimeLimit),
    ("MaxRuntimeExceeded", StopReason::TimeLimit),
    ("DeadlineExceeded: Job was active longer", StopReason::TimeLimit),
    ("srun: error: Node failure on ", StopReason::NodeFailure),
    ("Reason:           Preempted", StopReason::Preemption),
    ("Job was active longer than specified deadline", StopReason::TimeLimit),
];

/// Why a scheduler ended the job, if the line reports it.
pub(super) fn read(line: &str) -> Option<StopReason> {
    if let Some((before, rest)) = line.split_once(" CANCELLED ") {
        let is_slurms =
            before.contains("*** ") && [" ON ", "JOB ", "STEP "].iter().any(|word| before.contains(word));
        let rest = rest.to_ascii_uppercase();
        let reason = SLURM.iter().find(|(phrase, _)| rest.contains(phrase)).map(|(_, reason)| *reason);
        return is_slurms.then_some(reason.unwrap_or(StopReason::Unknown));
    }
    OTHERS.iter().find(|(phrase, _)| line.contains(phrase)).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_name_the_reason() {
        let slurm = |end: &str| {
            read(&format!("slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2026-01-05T10:14:11{end} ***"))
        };
        assert_eq!(slurm(" DUE TO TIME LIMIT"), Some(StopReason::TimeLimit));
        assert_eq!(slurm(" DUE TO PREEMPTION"), Some(StopReason::Preemption));
        assert_eq!(
            slurm(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"),
            Some(StopReason::NodeFailure)
        );
        assert_eq!(slurm(" DUE TO JOB REQUEUE"), Some(StopReason::Requeue));
        assert_eq!(slurm(" BY USER 1000"), Some(StopReason::User));
        assert_eq!(slurm(""), Some(StopReason::Unknown));
        assert_eq!(
            read("=>> PBS: job killed: walltime 3605 exceeded limit 3600"),
            Some(StopReason::TimeLimit)
        );
        assert_eq!(read("order 7 CANCELLED AT noon"), None);
        assert_eq!(read("step 3: loss 2.7"), None);
    }
}
