//! Reads an identity from the variables that launchers and schedulers set.
//!
//! Only the variables in [`VARIABLES`] are ever looked up: an environment contains secrets.
//!
//! **Precedence.** Launchers nest: Slurm starts torchrun, torchrun starts the program, and the program sees the
//! variables of both. The innermost launcher knows the process best, so the first row of [`SOURCES`] whose rank is
//! complete and possible provides all numbers (rank, local rank, both sizes, node rank); numbers of different
//! launchers are never mixed. Names (job, node, pod) do not contradict each other and come from any launcher, the
//! scheduler first.

use super::launchers::{FRAMEWORKS, JOB_IDS, NAMES, NO_JOB_IDS, SOURCES, VARIABLES};
use super::{JobField, JobIdentity};

impl JobIdentity {
    /// The identity that launchers gave to a process in its environment.
    pub fn from_environment(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| {
            let is_listed = VARIABLES.binary_search(&name).is_ok();
            if is_listed { lookup(name).filter(|value| !value.trim().is_empty()) } else { None }
        };
        let mut identity = numbers(&variable);
        for &(field, names) in NAMES {
            first_valid(&mut identity, field, names, &variable);
        }
        if let Some(job_id) = job_id(&variable) {
            identity.set(JobField::JobId, &job_id);
        }
        if let Some(attempt) = attempt(&variable) {
            identity.set(JobField::Attempt, &attempt.to_string());
        }
        // `mpirun` copies the environment of the node where it was started to all others.
        let is_mpi = identity.launcher.as_deref().is_some_and(|launcher| MPI.contains(&launcher));
        let nodes: &[&str] =
            if is_mpi { &["NODE_NAME"] } else { &["NODE_NAME", "SLURMD_NODENAME", "SM_CURRENT_HOST"] };
        first_valid(&mut identity, JobField::Node, nodes, &variable);
        first_valid(&mut identity, JobField::Container, &["CONTAINER_NAME"], &variable);
        if variable("KUBERNETES_SERVICE_HOST").is_some() {
            first_valid(&mut identity, JobField::Pod, &["POD_NAME", "HOSTNAME"], &variable);
        }
        if let Some((_, framework)) = FRAMEWORKS.iter().find(|(name, _)| variable(name).is_some()) {
            identity.set(JobField::Framework, framework);
        }
        identity
    }
}

const MPI: [&str; 3] = ["openmpi", "mvapich", "mpich"];

/// The numbers of the innermost launcher.
fn numbers(variable: &impl Fn(&str) -> Option<String>) -> JobIdentity {
    for source in SOURCES {
        if source.signs.iter().any(|sign| variable(sign).is_none()) {
            continue;
        }
        let mut identity = JobIdentity::default();
        // The size first: a rank that does not fit it says that the two do not belong together.
        first_valid(&mut identity, JobField::WorldSize, source.world_size, variable);
        if !first_valid(&mut identity, JobField::Rank, &[source.rank], variable) {
            continue;
        }
        first_valid(&mut identity, JobField::LocalWorldSize, source.local_world_size, variable);
        first_valid(&mut identity, JobField::LocalRank, source.local_rank, variable);
        first_valid(&mut identity, JobField::NodeRank, source.node_rank, variable);
        identity.set(JobField::Launcher, source.launcher);
        return identity;
    }
    lightning(variable)
}

/// Lightning gives the processes that it starts no rank but its parts. On the first node, the local rank is the rank.
fn lightning(variable: &impl Fn(&str) -> Option<String>) -> JobIdentity {
    let mut identity = JobIdentity::default();
    let has_parts = variable("LOCAL_RANK").is_some() && variable("WORLD_SIZE").is_some();
    if !has_parts || !first_valid(&mut identity, JobField::NodeRank, &["NODE_RANK"], variable) {
        return identity;
    }
    first_valid(&mut identity, JobField::WorldSize, &["WORLD_SIZE"], variable);
    first_valid(&mut identity, JobField::LocalRank, &["LOCAL_RANK"], variable);
    if identity.node_rank == Some(0) {
        first_valid(&mut identity, JobField::Rank, &["LOCAL_RANK"], variable);
    }
    identity.set(JobField::Framework, "lightning");
    identity
}

/// Sets a field to the first of these variables that is valid.
fn first_valid(
    identity: &mut JobIdentity,
    field: JobField,
    names: &[&str],
    variable: &impl Fn(&str) -> Option<String>,
) -> bool {
    names.iter().any(|name| variable(name).is_some_and(|value| identity.set(field, &value)))
}

fn job_id(variable: &impl Fn(&str) -> Option<String>) -> Option<String> {
    JOB_IDS
        .iter()
        .find_map(|&name| variable(name).filter(|value| !NO_JOB_IDS.contains(&(name, value.as_str()))))
}

/// Restarts of the job or, if the scheduler did not restart it, of the processes in it.
fn attempt(variable: &impl Fn(&str) -> Option<String>) -> Option<u32> {
    let counts = ["SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"];
    counts.iter().filter_map(|name| variable(name)?.trim().parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> JobIdentity {
        JobIdentity::from_environment(|name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn numbers_of(identity: &JobIdentity) -> [Option<u32>; 5] {
        let JobIdentity { rank, local_rank, world_size, local_world_size, node_rank, .. } = *identity;
        [rank, local_rank, world_size, local_world_size, node_rank]
    }

    #[test]
    fn only_listed_variables_are_looked_up_and_all_of_them() {
        assert!(VARIABLES.is_sorted());
        let seen = RefCell::new(BTreeSet::new());
        // Every sign is there, but no rank is valid: all rows are tried.
        for value in ["x", "0", "none"] {
            JobIdentity::from_environment(|name| {
                seen.borrow_mut().insert(name.to_owned());
                Some(if name.ends_with("NODE_RANK") { "0".to_owned() } else { value.to_owned() })
            });
        }
        for source in SOURCES {
            JobIdentity::from_environment(|name| {
                seen.borrow_mut().insert(name.to_owned());
                let is_own = source.rank == name || source.signs.contains(&name);
                is_own.then(|| "0".to_owned())
            });
        }
        JobIdentity::from_environment(|name| {
            seen.borrow_mut().insert(name.to_owned());
            None
        });
        let listed: BTreeSet<String> = VARIABLES.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(*seen.borrow(), listed);
    }

    #[test]
    fn nothing_set_is_no_identity() {
        assert_eq!(read(&[]), JobIdentity::default());
        assert_eq!(
            read(&[("RANK", "3"), ("HOSTNAME", "laptop"), ("LOCAL_RANK", "")]),
            JobIdentity::default()
        );
    }

    #[test]
    fn torchrun_inside_slurm_numbers_the_processes_and_slurm_names_the_job() {
        let identity = read(&[
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "2"),
            ("SLURMD_NODENAME", "node7"),
            ("TORCHELASTIC_RUN_ID", "abc"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("RANK", "11"),
            ("LOCAL_RANK", "3"),
            ("WORLD_SIZE", "16"),
            ("LOCAL_WORLD_SIZE", "8"),
            ("GROUP_RANK", "1"),
        ]);
        assert_eq!(numbers_of(&identity), [Some(11), Some(3), Some(16), Some(8), Some(1)]);
        assert_eq!(identity.launcher.as_deref(), Some("torchrun"));
        assert_eq!(identity.job_id.as_deref(), Some("4711"));
        assert_eq!(identity.node.as_deref(), Some("node7"));
        assert_eq!(identity.attempt, Some(2));
    }

    #[test]
    fn each_launcher_is_read() {
        type Case = (&'static [(&'static str, &'static str)], &'static str, [Option<u32>; 5]);
        let cases: &[Case] = &[
            (
                &[
                    ("OMPI_COMM_WORLD_RANK", "5"),
                    ("OMPI_COMM_WORLD_SIZE", "8"),
                    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
                    ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
                    ("PMIX_RANK", "5"),
                    ("PMIX_NAMESPACE", "prterun-node7-4711@1"),
                ],
                "openmpi",
                [Some(5), Some(1), Some(8), Some(4), None],
            ),
            (
                &[("PMI_RANK", "2"), ("PMI_SIZE", "4"), ("MPI_LOCALRANKID", "2"), ("MPI_LOCALNRANKS", "4")],
                "mpich",
                [Some(2), Some(2), Some(4), Some(4), None],
            ),
            (
                &[("MV2_COMM_WORLD_RANK", "2"), ("MV2_COMM_WORLD_SIZE", "4")],
                "mvapich",
                [Some(2), None, Some(4), None, None],
            ),
            (&[("PMIX_RANK", "2"), ("PMIX_NAMESPACE", "x")], "pmix", [Some(2), None, None, None, None]),
            (
                &[
                    ("SLURM_STEP_ID", "3"),
                    ("SLURM_PROCID", "6"),
                    ("SLURM_STEP_NUM_TASKS", "8"),
                    ("SLURM_NTASKS", "4"),
                    ("SLURM_LOCALID", "2"),
                    ("SLURM_NODEID", "1"),
                ],
                "slurm",
                [Some(6), Some(2), Some(8), None, Some(1)],
            ),
            (
                &[
                    ("RANK", "3"),
                    ("LOCAL_RANK", "1"),
                    ("WORLD_SIZE", "4"),
                    ("LOCAL_SIZE", "2"),
                    ("CROSS_RANK", "1"),
                    ("CROSS_SIZE", "2"),
                ],
                "deepspeed",
                [Some(3), Some(1), Some(4), Some(2), Some(1)],
            ),
            (
                &[("HOROVOD_RANK", "3"), ("HOROVOD_SIZE", "4"), ("HOROVOD_LOCAL_RANK", "3")],
                "horovod",
                [Some(3), Some(3), Some(4), None, None],
            ),
            (
                &[("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("JOB_COMPLETION_INDEX", "9")],
                "kubernetes",
                [Some(9), None, None, None, None],
            ),
            (
                &[("MAKEROOM_RANK", "1"), ("OMPI_COMM_WORLD_RANK", "5"), ("OMPI_COMM_WORLD_SIZE", "8")],
                "makeroom",
                [Some(1), None, None, None, None],
            ),
        ];
        for (pairs, launcher, expected) in cases {
            let identity = read(pairs);
            assert_eq!(numbers_of(&identity), *expected, "{launcher}");
            assert_eq!(identity.launcher.as_deref(), Some(*launcher));
        }
    }

    #[test]
    fn frameworks_are_recognized() {
        let lightning = read(&[("LOCAL_RANK", "1"), ("NODE_RANK", "0"), ("WORLD_SIZE", "4")]);
        assert_eq!(numbers_of(&lightning), [Some(1), Some(1), Some(4), None, Some(0)]);
        assert_eq!(lightning.framework.as_deref(), Some("lightning"));
        let second_node = read(&[("LOCAL_RANK", "1"), ("NODE_RANK", "2"), ("WORLD_SIZE", "8")]);
        assert_eq!((second_node.rank, second_node.local_rank), (None, Some(1)), "the rank is not known");
        assert_eq!(read(&[("RAY_JOB_ID", "01000000")]).framework.as_deref(), Some("ray"));
        assert_eq!(read(&[("ACCELERATE_MIXED_PRECISION", "no")]).framework.as_deref(), Some("accelerate"));
    }

    #[test]
    fn a_batch_script_and_a_forwarded_environment_are_not_mistaken() {
        let script = read(&[("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]);
        assert_eq!((script.rank, script.job_id.as_deref()), (None, Some("7")));
        let forwarded = read(&[
            ("OMPI_COMM_WORLD_RANK", "5"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("SLURMD_NODENAME", "the-first-node"),
        ]);
        assert_eq!(forwarded.node, None);
        assert_eq!(read(&[("TORCHELASTIC_RUN_ID", "none")]).job_id, None);
        assert_eq!(read(&[("RAY_JOB_ID", "ffffffff")]).job_id, None, "a worker that Ray started in advance");
        assert_eq!(read(&[("RAY_JOB_ID", "01000000")]).job_id.as_deref(), Some("01000000"));
    }

    #[test]
    fn impossible_numbers_of_one_launcher_leave_the_next() {
        let identity = read(&[
            ("RANK", "9"),
            ("WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
        ]);
        assert_eq!((identity.rank, identity.launcher.as_deref()), (Some(1), Some("openmpi")));
        assert_eq!(read(&[("RANK", "-1"), ("WORLD_SIZE", "4")]).rank, None);
    }

    /// An index of an indexed Job is a rank, or the node of a torchrun in it: its pods are one job.
    #[test]
    fn pods_of_an_indexed_job_are_not_tasks_of_an_array() {
        let pod = [("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("JOB_COMPLETION_INDEX", "1")];
        assert_eq!((read(&pod).rank, read(&pod).part()), (Some(1), None));
        let torchrun = [("TORCHELASTIC_RUN_ID", "none"), ("RANK", "8"), ("WORLD_SIZE", "16")];
        let inside = read(&[&pod[..], &torchrun[..]].concat());
        assert_eq!((inside.rank, inside.part()), (Some(8), None));
    }

    #[test]
    fn pods_and_arrays_are_named() {
        let pod =
            read(&[("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("HOSTNAME", "train-0"), ("NODE_NAME", "gpu-4")]);
        assert_eq!((pod.pod.as_deref(), pod.node.as_deref()), (Some("train-0"), Some("gpu-4")));
        let array = read(&[("SLURM_JOB_ID", "9"), ("SLURM_ARRAY_JOB_ID", "7"), ("SLURM_ARRAY_TASK_ID", "2")]);
        assert_eq!((array.job_id.as_deref(), array.task), (Some("7"), Some(2)));
        assert_eq!(array.part().as_deref(), Some("task 2"));
        assert_eq!(read(&[("REPLICA_GROUP_ID", "1")]).part().as_deref(), Some("replica 1"));
    }
}
