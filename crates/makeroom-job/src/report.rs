//! The answer for a job, as data. `makeroom-report` renders it; `--json` prints it as it is, so names are a contract.

use serde::Serialize;

use crate::tables::{RecordingKind, Unread};

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// The verdict.
    pub verdict: JobVerdict,
    /// ID of the job, if known.
    pub job: Option<String>,
    /// Which attempt of it.
    pub attempt: Option<u32>,
    /// Number of ranks, if known.
    pub world_size: Option<u32>,
    /// The ranks to blame, the most important first. Empty if nothing failed, or if no rank differs.
    pub culprits: Vec<RankFinding>,
    /// Ranks that ended because of another rank, by kind.
    pub consequences: Vec<Consequence>,
    /// Errors of other ranks that are not about memory, and that the verdict does not explain.
    pub errors: Vec<RankError>,
    /// Ranks that caught a failed allocation and continued.
    pub caught: Vec<String>,
    /// Memory of the GPU that ran out, by rank.
    pub account: Option<Account>,
    /// Ranks that hold the same, the largest group first.
    pub groups: Vec<Group>,
    /// The GPUs that were used.
    pub cards: Vec<CardUse>,
    /// GPUs that ranks could see and did not use, on hosts where ranks share one.
    pub idle_cards: Vec<String>,
    /// Difference between the ranks over time.
    pub imbalance: Option<Imbalance>,
    /// Host memory by host.
    pub hosts: Vec<HostUse>,
    /// What to do, most effective first.
    pub fixes: Vec<JobFix>,
    /// All ranks, sorted by rank.
    pub ranks: Vec<RankReport>,
    /// What the answer is based on.
    pub used: Used,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

/// Why a job failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobCause {
    /// Nothing failed.
    None,
    /// Allocations failed, and the ranks caught the error.
    Caught,
    /// One rank, or a few, holds more than the ranks like it.
    RankHoldsMore,
    /// The ranks of one group, such as a pipeline stage, hold more than the others.
    GroupHoldsMore,
    /// Ranks share a GPU while others are idle.
    RanksShareGpu,
    /// All ranks hold about the same and run out together.
    EveryRankFull,
    /// A rank requested more at once than its whole GPU or its limit has.
    RequestTooLarge,
    /// A rank ran out for a reason of its own.
    RankRanOut,
    /// Host memory ran out, and the kernel killed a rank or one of its processes.
    HostMemory,
    /// A rank was killed (SIGKILL), most often for host memory.
    RankKilled,
    /// All ranks were killed together.
    AllKilled,
    /// The job was ended from outside.
    Terminated,
    /// A rank failed for a reason other than memory.
    OtherFailure,
    /// The other ranks waited in a collective for a rank that did not call it, or called another one.
    CollectiveStalled,
    /// The recordings do not show the first failure.
    Undetermined,
}

impl JobCause {
    /// Whether the job failed.
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::None | Self::Caught)
    }
}

/// The verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobVerdict {
    /// The cause.
    pub cause: JobCause,
    /// `certain`, `likely`, `possible` or `undetermined`.
    pub certainty: &'static str,
    /// The cause as a title: `RANK 3 HOLDS MORE THAN THE OTHERS`.
    pub title: String,
    /// One or two sentences with the deciding figures.
    pub summary: String,
}

/// A rank to blame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankFinding {
    /// Its label: `rank 3`.
    pub label: String,
    /// Its rank.
    pub rank: Option<u32>,
    /// Its host.
    pub host: Option<String>,
    /// Its recording.
    pub recording: String,
    /// The GPU.
    pub device: Option<u32>,
    /// The failed request.
    pub requested_bytes: Option<u64>,
    /// Memory that it held then.
    pub held_bytes: Option<u64>,
    /// What ranks of its group typically hold.
    pub typical_bytes: Option<u64>,
    /// The line that failed.
    pub place: Option<String>,
    /// The lines in which it differs from its group, largest first.
    pub lines: Vec<LineDifference>,
    /// The cause that its own recording shows, as in `why --json`.
    pub own_cause: String,
    /// The same in a sentence.
    pub own_summary: String,
}

/// A line of code that holds more on one rank or group than on others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LineDifference {
    /// The line.
    pub place: String,
    /// Bytes here.
    pub bytes: u64,
    /// Typical bytes elsewhere.
    pub typical_bytes: u64,
}

/// A kind of consequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsequenceKind {
    /// Ran out of memory that another rank on the same GPU holds.
    SharedGpu,
    /// Ended by the launcher.
    Terminated,
    /// A collective timed out.
    CollectiveTimeout,
    /// The connection to another rank was lost.
    PeerLost,
    /// Killed after another rank had failed.
    Killed,
    /// Exited with an error after another rank had failed.
    Exited,
}

impl ConsequenceKind {
    /// After the names of the ranks.
    pub const fn words(self) -> &'static str {
        match self {
            Self::SharedGpu => "ran out of memory because another rank on the same GPU holds it",
            Self::Terminated => "terminated by the launcher (SIGTERM)",
            Self::CollectiveTimeout => "a collective timed out",
            Self::PeerLost => "lost the connection to another rank",
            Self::Killed => "killed by a signal",
            Self::Exited => "exited with an error, without running out of memory",
        }
    }
}

/// Ranks that ended because of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Consequence {
    /// In which way.
    pub kind: ConsequenceKind,
    /// Their labels.
    pub ranks: Vec<String>,
    /// The same, abbreviated: `ranks 0–2 and 4–15`.
    pub words: String,
}

/// Ranks that failed with the same error, which is not about memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankError {
    /// Their labels.
    pub ranks: Vec<String>,
    /// The same, abbreviated.
    pub words: String,
    /// The error, as their logs show it.
    pub error: String,
}

/// Memory of one GPU, by rank: total = Σ lines + unaccounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Account {
    /// The GPU: `GPU 0 of node7`.
    pub name: String,
    /// Its total memory.
    pub total_bytes: u64,
    /// Its memory by owner.
    pub lines: Vec<AccountLine>,
    /// What no line explains; negative if the figures were not taken at the same time.
    pub unaccounted_bytes: i64,
}

/// A line of the account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AccountLine {
    /// `rank 3`, `CUDA contexts of 4 ranks`, `free`.
    pub what: String,
    /// Whether it is the memory of a rank, or of several.
    pub is_rank: bool,
    /// Bytes.
    pub bytes: u64,
    /// A remark, or empty.
    pub remark: String,
}

/// Ranks that hold the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// `A`, `B`, ….
    pub name: String,
    /// Labels of its members.
    pub ranks: Vec<String>,
    /// The same, abbreviated.
    pub words: String,
    /// Median of live memory.
    pub typical_bytes: u64,
    /// Median by line, largest first.
    pub lines: Vec<LineDifference>,
    /// Members that hold more.
    pub outliers: Vec<Outlier>,
}

/// A member of a group that holds more than the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outlier {
    /// Its label.
    pub label: String,
    /// Live memory.
    pub bytes: u64,
    /// The lines in which it differs, largest difference first.
    pub lines: Vec<LineDifference>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CardUse {
    /// `GPU 0 of node7`.
    pub name: String,
    /// Host.
    pub host: Option<String>,
    /// UUID.
    pub uuid: Option<String>,
    /// Total memory.
    pub total_bytes: Option<u64>,
    /// Labels of the ranks that used it.
    pub ranks: Vec<String>,
    /// Sum of the ranks' peaks.
    pub peak_bytes: u64,
}

/// Difference between ranks over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Imbalance {
    /// At most 20 points.
    pub points: Vec<ImbalancePoint>,
    /// Largest rank ÷ median, at the first and the last point.
    pub first_ratio: f64,
    /// See `first_ratio`.
    pub last_ratio: f64,
}

/// One point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImbalancePoint {
    /// Microseconds since each rank's recording began.
    pub elapsed_us: u64,
    /// Median of held memory.
    pub median_bytes: u64,
    /// The largest.
    pub largest_bytes: u64,
    /// The rank that holds it.
    pub largest: String,
}

/// Host memory of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostUse {
    /// The host.
    pub host: String,
    /// Number of ranks.
    pub ranks: usize,
    /// Sum of the ranks' resident memory at their peaks.
    pub resident_bytes: u64,
    /// Usage of the cgroup.
    pub cgroup_bytes: Option<u64>,
    /// Limit of the cgroup.
    pub cgroup_limit_bytes: Option<u64>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobFix {
    /// In words.
    pub action: String,
    /// The line to paste.
    pub command: Option<String>,
}

/// How a rank fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RankFate {
    /// It finished.
    Finished,
    /// It caught a failed allocation and finished.
    Caught,
    /// It ran out of memory.
    RanOut,
    /// It was killed.
    Killed,
    /// The launcher ended it.
    Terminated,
    /// A collective timed out.
    CollectiveTimeout,
    /// It lost a connection.
    PeerLost,
    /// It exited with an error.
    Failed,
    /// It is still running.
    Running,
    /// Unknown.
    Unknown,
}

impl RankFate {
    /// In a table.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Caught => "caught",
            Self::RanOut => "ran out",
            Self::Killed => "killed",
            Self::Terminated => "terminated",
            Self::CollectiveTimeout => "timed out",
            Self::PeerLost => "lost a peer",
            Self::Failed => "failed",
            Self::Running => "running",
            Self::Unknown => "unknown",
        }
    }
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankReport {
    /// Its label.
    pub label: String,
    /// Its rank.
    pub rank: Option<u32>,
    /// Its host.
    pub host: Option<String>,
    /// Its recording.
    pub recording: String,
    /// The command that shows it.
    pub command: String,
    /// The recording's format.
    pub kind: RecordingKind,
    /// How it fared.
    pub fate: RankFate,
    /// Whether it is to blame.
    pub is_culprit: bool,
    /// Its group.
    pub group: Option<String>,
    /// The GPUs it used.
    pub cards: Vec<String>,
    /// Peak of held memory on its fullest GPU.
    pub peak_bytes: u64,
    /// Memory held at its end.
    pub last_bytes: u64,
    /// The failed request.
    pub requested_bytes: Option<u64>,
    /// The line that failed.
    pub place: Option<String>,
    /// Length of its recording.
    pub recorded_us: Option<u64>,
}

/// Two logs of one rank that show different failures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogConflict {
    /// The rank.
    pub label: String,
    /// The log that was used.
    pub used: String,
    /// The other one.
    pub other: String,
    /// The failure in the other one.
    pub failure: String,
}

/// What an answer is based on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Used {
    /// Number of recordings used; a log of several processes counts as one for each.
    pub recordings: usize,
    /// Number of files that contain them.
    pub files: usize,
    /// Ranks without a recording.
    pub missing_ranks: Vec<u32>,
    /// Recordings whose end is damaged or missing.
    pub torn: Vec<String>,
    /// Recordings of a rank that was recorded twice; the newer one was used.
    pub duplicates: Vec<String>,
    /// Ranks with two logs that show different failures.
    pub conflicts: Vec<LogConflict>,
    /// Files that name no rank of the job and show no failure.
    pub unused: Vec<String>,
    /// Other jobs and attempts in the input, with the number of recordings.
    pub other_jobs: Vec<String>,
    /// Files that could not be read.
    pub unread: Vec<Unread>,
}
