//! The variables that launchers and schedulers set, as tables.
//!
//! To add a launcher, add a row to [`SOURCES`] and its variables to [`VARIABLES`].

use super::JobField;

/// The variables of one launcher that number its processes.
pub(super) struct Source {
    pub(super) launcher: &'static str,
    /// Variables that must all be set, because others use the same names for the rank.
    pub(super) signs: &'static [&'static str],
    pub(super) rank: &'static str,
    pub(super) world_size: &'static [&'static str],
    pub(super) local_rank: &'static [&'static str],
    pub(super) local_world_size: &'static [&'static str],
    pub(super) node_rank: &'static [&'static str],
}

/// Innermost launcher first.
pub(super) const SOURCES: &[Source] = &[
    // For launchers that makeroom does not know, and for tests.
    Source {
        launcher: "makeroom",
        signs: &[],
        rank: "MAKEROOM_RANK",
        world_size: &["MAKEROOM_WORLD_SIZE"],
        local_rank: &["MAKEROOM_LOCAL_RANK"],
        local_world_size: &[],
        node_rank: &[],
    },
    Source {
        launcher: "torchrun",
        signs: &["TORCHELASTIC_RUN_ID", "WORLD_SIZE"],
        rank: "RANK",
        world_size: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        local_world_size: &["LOCAL_WORLD_SIZE"],
        node_rank: &["GROUP_RANK"],
    },
    Source {
        launcher: "deepspeed",
        signs: &["CROSS_RANK", "CROSS_SIZE", "WORLD_SIZE"],
        rank: "RANK",
        world_size: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        local_world_size: &["LOCAL_SIZE"],
        node_rank: &["CROSS_RANK"],
    },
    Source {
        launcher: "horovod",
        signs: &[],
        rank: "HOROVOD_RANK",
        world_size: &["HOROVOD_SIZE"],
        local_rank: &["HOROVOD_LOCAL_RANK"],
        local_world_size: &["HOROVOD_LOCAL_SIZE"],
        node_rank: &["HOROVOD_CROSS_RANK"],
    },
    // PyTorch's own names, set by a script, by Ray Train or by a Kubernetes operator.
    Source {
        launcher: "",
        signs: &["WORLD_SIZE"],
        rank: "RANK",
        world_size: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        local_world_size: &["LOCAL_WORLD_SIZE"],
        node_rank: &["NODE_RANK", "GROUP_RANK"],
    },
    // `OMPI_COMM_WORLD_NODE_RANK` is not the number of the node but one more number on it.
    Source {
        launcher: "openmpi",
        signs: &[],
        rank: "OMPI_COMM_WORLD_RANK",
        world_size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_world_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        node_rank: &[],
    },
    Source {
        launcher: "mvapich",
        signs: &[],
        rank: "MV2_COMM_WORLD_RANK",
        world_size: &["MV2_COMM_WORLD_SIZE"],
        local_rank: &["MV2_COMM_WORLD_LOCAL_RANK"],
        local_world_size: &["MV2_COMM_WORLD_LOCAL_SIZE"],
        node_rank: &[],
    },
    Source {
        launcher: "mpich",
        signs: &["PMI_SIZE"],
        rank: "PMI_RANK",
        world_size: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID"],
        local_world_size: &["MPI_LOCALNRANKS"],
        node_rank: &[],
    },
    // A batch script also has `SLURM_PROCID=0`; only `srun` starts a step.
    Source {
        launcher: "slurm",
        signs: &["SLURM_STEP_ID"],
        rank: "SLURM_PROCID",
        world_size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
        local_rank: &["SLURM_LOCALID"],
        local_world_size: &[],
        node_rank: &["SLURM_NODEID"],
    },
    // After Slurm, which also provides PMIx but numbers nodes too.
    Source {
        launcher: "pmix",
        signs: &["PMIX_NAMESPACE"],
        rank: "PMIX_RANK",
        world_size: &[],
        local_rank: &[],
        local_world_size: &[],
        node_rank: &[],
    },
    Source {
        launcher: "kubernetes",
        signs: &["KUBERNETES_SERVICE_HOST"],
        rank: "JOB_COMPLETION_INDEX",
        world_size: &[],
        local_rank: &[],
        local_world_size: &[],
        node_rank: &[],
    },
];

/// Variables of names and other single fields; the first that is set and valid counts.
pub(super) const NAMES: &[(JobField, &[&str])] = &[
    (JobField::Task, &["SLURM_ARRAY_TASK_ID", "LSB_JOBINDEX"]),
    (JobField::Replica, &["REPLICA_GROUP_ID", "TORCHX_REPLICA_ID", "JOB_INDEX"]),
    (JobField::VisibleDevices, &["CUDA_VISIBLE_DEVICES"]),
];

/// Variables of the job's ID: the scheduler's, then the launcher's. An array of jobs has one ID.
pub(super) const JOB_IDS: &[&str] = &[
    "MAKEROOM_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_JOB_ID",
    "LSB_JOBID",
    "PBS_JOBID",
    "TRAINING_JOB_NAME",
    "JOBSET_NAME",
    "TORCHX_JOB_ID",
    "RAY_JOB_ID",
    "TORCHELASTIC_RUN_ID",
    "PMIX_NAMESPACE",
];
/// Values that mean no job: torchrun's without `--rdzv-id`, and Ray's for a worker that it started in advance.
pub(super) const NO_JOB_IDS: &[(&str, &str)] = &[("TORCHELASTIC_RUN_ID", "none"), ("RAY_JOB_ID", "ffffffff")];

/// Variables whose presence names the framework.
pub(super) const FRAMEWORKS: &[(&str, &str)] = &[
    ("ACCELERATE_MIXED_PRECISION", "accelerate"),
    ("CROSS_SIZE", "deepspeed"),
    ("HOROVOD_RANK", "horovod"),
    ("RAY_JOB_ID", "ray"),
    ("PL_GLOBAL_SEED", "lightning"),
];

/// All variables that an identity is read from, sorted.
pub const VARIABLES: &[&str] = &[
    "ACCELERATE_MIXED_PRECISION",
    "CONTAINER_NAME",
    "CROSS_RANK",
    "CROSS_SIZE",
    "CUDA_VISIBLE_DEVICES",
    "GROUP_RANK",
    "HOROVOD_CROSS_RANK",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HOSTNAME",
    "JOBSET_NAME",
    "JOB_COMPLETION_INDEX",
    "JOB_INDEX",
    "KUBERNETES_SERVICE_HOST",
    "LOCAL_RANK",
    "LOCAL_SIZE",
    "LOCAL_WORLD_SIZE",
    "LSB_JOBID",
    "LSB_JOBINDEX",
    "MAKEROOM_JOB_ID",
    "MAKEROOM_LOCAL_RANK",
    "MAKEROOM_RANK",
    "MAKEROOM_WORLD_SIZE",
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_SIZE",
    "NODE_NAME",
    "NODE_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PBS_JOBID",
    "PL_GLOBAL_SEED",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "POD_NAME",
    "RANK",
    "RAY_JOB_ID",
    "REPLICA_GROUP_ID",
    "SLURMD_NODENAME",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_JOB_ID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS",
    "SM_CURRENT_HOST",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
    "TORCHX_JOB_ID",
    "TORCHX_REPLICA_ID",
    "TRAINING_JOB_NAME",
    "WORLD_SIZE",
];
