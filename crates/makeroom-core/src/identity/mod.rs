//! The place of a process in a job of many processes: its rank, host, job and launcher.
//!
//! ```text
//! environment.rs  launcher variables (torchrun, Slurm, MPI, Kubernetes, …) to an identity
//! launchers.rs    those variables, as tables
//! file_name.rs    names of snapshots, logs and recordings to an identity
//! log_line.rs     the rank that a launcher puts in front of a line
//! line_header.rs  the time and level in front of that
//! pod_line.rs     the pod that `stern` and Docker Compose put in front of a line
//! pod_name.rs     the rank in the name of a pod
//! pod_status.rs   how pods ended, as kubectl shows it
//! ray.rs          the rank and the end of Ray's workers
//! failure_list.rs the ranks that torchrun, srun and mpirun report as ended
//! reported.rs     the processes that the kernel and torchrun name by their PID
//! fields.rs       the numbered fields of a recording
//! ```
//!
//! Every field is optional: a program that no launcher started has none of them. All sources are untrusted, so a
//! field is set only through [`JobIdentity::set`], which bounds and checks it.
//!
//! Invariants: `rank < world_size` and `local_rank < local_world_size` if both are known; every number is at most
//! [`JobIdentity::MOST_RANKS`]; every text is 1 to [`JobIdentity::LONGEST_TEXT`] bytes without control characters.

mod environment;
mod failure_list;
mod fields;
mod file_name;
mod launchers;
mod line_header;
mod log_line;
mod pod_line;
mod pod_name;
mod pod_status;
mod ray;
mod reported;

pub use failure_list::{FailureList, ListedRank, ended_local_rank};
pub use fields::JobField;
pub use file_name::identities_of_set;
pub use launchers::VARIABLES;
pub use line_header::without_header;
pub use log_line::LinePrefix;
pub use pod_line::PodLabels;
pub use pod_status::{PodLine, PodStatuses};
pub use ray::{RayEvent, RayReports, RayWorker};
pub use reported::{ProcessEvent, ProcessReports, ReportedProcess};

/// The place of a process in a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobIdentity {
    /// Number of the process in the job, from 0.
    pub rank: Option<u32>,
    /// Number of the process on its host, from 0.
    pub local_rank: Option<u32>,
    /// Number of processes in the job.
    pub world_size: Option<u32>,
    /// Number of processes of the job on this host.
    pub local_world_size: Option<u32>,
    /// Number of the host in the job, from 0.
    pub node_rank: Option<u32>,
    /// Name of the host as the scheduler knows it.
    pub node: Option<String>,
    /// Name of the host as the host knows it; in a container, that of the container.
    pub host: Option<String>,
    /// ID of the job in its scheduler or launcher.
    pub job_id: Option<String>,
    /// How often the job was restarted before this attempt.
    pub attempt: Option<u32>,
    /// Index in an array of jobs.
    pub task: Option<u32>,
    /// Replica of the job, if several run the same work.
    pub replica: Option<String>,
    /// Kubernetes pod.
    pub pod: Option<String>,
    /// Container.
    pub container: Option<String>,
    /// The devices that the process may use: `CUDA_VISIBLE_DEVICES`.
    pub visible_devices: Option<String>,
    /// UUIDs of the devices that it used.
    pub device_uuids: Vec<String>,
    /// When it started to record, in microseconds since the epoch.
    pub began_us: Option<u64>,
    /// The framework that distributes the work: `lightning`, `accelerate`, `deepspeed`, `ray`, ….
    pub framework: Option<String>,
    /// The program that started the process: `torchrun`, `slurm`, `openmpi`, ….
    pub launcher: Option<String>,
}

impl JobIdentity {
    /// Largest number of processes, nodes or attempts. A larger number is not an identity but, for example, a date.
    pub const MOST_RANKS: u32 = 1 << 20;
    /// Length of the longest text in bytes.
    pub const LONGEST_TEXT: usize = 256;

    /// Whether nothing says which process of a job this is.
    pub fn is_alone(&self) -> bool {
        self.rank.is_none() && self.local_rank.is_none()
    }

    /// Whether a launcher or a scheduler is known to have started the process.
    pub fn is_of_job(&self) -> bool {
        !self.is_alone() || self.job_id.is_some()
    }

    /// The name of the process for people: `rank 3`, or `local rank 3` if only that is known.
    pub fn name(&self) -> Option<String> {
        match (self.rank, self.local_rank) {
            (Some(rank), _) => Some(format!("rank {rank}")),
            (None, Some(local)) => Some(format!("local rank {local}")),
            (None, None) => None,
        }
    }

    /// The part of the job that the process belongs to, if several do the same work: `replica 1`, `task 7`.
    pub fn part(&self) -> Option<String> {
        let replica = self.replica.as_ref().map(|replica| format!("replica {replica}"));
        replica.or_else(|| self.task.map(|task| format!("task {task}")))
    }

    /// Fills in the fields that are missing here from another source about the same process.
    #[must_use]
    pub fn or(mut self, other: &Self) -> Self {
        for (field, value) in other.fields() {
            if self.get(field).is_none() {
                self.set(field, &value);
            }
        }
        if self.device_uuids.is_empty() {
            self.device_uuids.clone_from(&other.device_uuids);
        }
        self.began_us = self.began_us.or(other.began_us);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_by_the_rank_that_is_known() {
        let mut identity = JobIdentity::default();
        assert!(identity.is_alone());
        assert_eq!(identity.name(), None);
        identity.local_rank = Some(1);
        assert_eq!(identity.name().as_deref(), Some("local rank 1"));
        identity.rank = Some(9);
        assert_eq!(identity.name().as_deref(), Some("rank 9"));
    }

    #[test]
    fn a_second_source_fills_gaps_and_contradicts_nothing() {
        let recorded = JobIdentity { rank: Some(3), host: Some("a".to_owned()), ..JobIdentity::default() };
        let named = JobIdentity {
            rank: Some(4),
            world_size: Some(2),
            node: Some("node7".to_owned()),
            began_us: Some(5),
            ..JobIdentity::default()
        };
        let both = recorded.or(&named);
        assert_eq!((both.rank, both.world_size), (Some(3), None), "rank 3 of 2 does not exist");
        assert_eq!((both.node.as_deref(), both.began_us), (Some("node7"), Some(5)));
    }
}
