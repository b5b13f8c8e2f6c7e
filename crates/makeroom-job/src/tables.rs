//! The rows that a recording is reduced to. Sizes are bytes, times are microseconds since the epoch.
//!
//! Every row names its recording, so the rows of many recordings form five tables. Bounds per recording: 64 sites per
//! device, 200 steps per device, 200 points of a series per device, 64 failures.

use serde::{Deserialize, Serialize};

pub use crate::stop::{StopReason, StopRow};

/// The rows of one or many recordings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// One per process.
    pub recordings: Vec<RecordingRow>,
    /// Failed allocations, and what a log reports.
    pub failures: Vec<FailureRow>,
    /// Live memory by line of code, at the failure or at the peak.
    pub sites: Vec<SiteRow>,
    /// Peak and floor of each step.
    pub steps: Vec<StepRow>,
    /// Memory over time.
    pub series: Vec<SeriesRow>,
    /// Jobs that a scheduler ended.
    #[serde(default)]
    pub stops: Vec<StopRow>,
    /// Files that could not be read.
    pub unread: Vec<Unread>,
}

impl Rows {
    /// Adds the rows of other recordings.
    pub fn extend(&mut self, other: Self) {
        self.recordings.extend(other.recordings);
        self.failures.extend(other.failures);
        self.sites.extend(other.sites);
        self.steps.extend(other.steps);
        self.series.extend(other.series);
        self.stops.extend(other.stops);
        self.unread.extend(other.unread);
    }

    /// Whether the recordings can be ranks of one job: one names its rank, several processes share a run, or a log has
    /// lines of several processes. Any two files can be in one folder.
    #[must_use]
    pub fn may_be_a_job(&self) -> bool {
        let mut runs: Vec<&str> = self.recordings.iter().filter_map(|row| row.run.as_deref()).collect();
        runs.sort_unstable();
        self.recordings.len() < 2
            || self.recordings.iter().any(|row| row.process.is_some())
            || self.recordings.iter().any(RecordingRow::names_rank)
            || runs.windows(2).any(|pair| pair[0] == pair[1])
    }
}

impl RecordingRow {
    /// The file that contains it: a log can have lines of several processes.
    #[must_use]
    pub fn file(&self) -> &str {
        let name = self.recording.as_str();
        // ` (rank 3)`.
        let added = self.process.as_ref().map_or(0, |process| process.len() + 3);
        name.len().checked_sub(added).and_then(|end| name.get(..end)).unwrap_or(name)
    }

    /// The file and the line that report how it ended.
    pub(crate) fn ended_at(&self) -> Option<(&str, u64)> {
        self.ended_line.map(|line| (self.file(), line))
    }

    /// The name of a recording: that of its file, and in a log of several processes which one it is.
    #[must_use]
    pub fn name(file: &str, process: Option<&str>) -> String {
        process.map_or_else(|| file.to_owned(), |process| format!("{file} ({process})"))
    }

    /// Whether it explains a failure.
    pub(crate) fn explains(&self) -> bool {
        self.cause != "none" && !self.summary.is_empty()
    }

    /// Whether it is known which process of a job it is.
    #[must_use]
    pub fn names_rank(&self) -> bool {
        self.rank.is_some() || self.local_rank.is_some()
    }
}

/// The format of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordingKind {
    /// A `.room` file.
    Room,
    /// A PyTorch memory snapshot.
    TorchSnapshot,
    /// A log of RMM's logging resource.
    RmmLog,
    /// JAX's device memory profile.
    JaxProfile,
    /// A program's output.
    Log,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It exited with this status.
    Exited(u32),
    /// A signal ended it.
    Signaled(u32),
    /// The recording stops between two records without an end, as after SIGKILL.
    Killed,
    /// It was still running when its recording was read.
    Running,
    /// The format does not record it, or the end of the file is missing.
    Unknown,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordingRow {
    /// The name of its file, with `process`; unique.
    pub recording: String,
    /// Which process of a log with several: `rank 3`, `PID 4711 on node7`.
    #[serde(default)]
    pub process: Option<String>,
    /// Its format.
    pub kind: RecordingKind,
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Rank on its host.
    pub local_rank: Option<u32>,
    /// Number of ranks.
    pub world_size: Option<u32>,
    /// The host or node, as the scheduler or the system names it.
    pub host: Option<String>,
    /// The Kubernetes pod, if a log names it.
    #[serde(default)]
    pub pod: Option<String>,
    /// Number of the node in the job.
    pub node_rank: Option<u32>,
    /// ID of the job.
    pub job: Option<String>,
    /// How often the job was restarted before.
    pub attempt: Option<u32>,
    /// `replica 1` or, in an array of jobs, `task 7`: where several jobs share an ID.
    pub replica: Option<String>,
    /// ID of the `makeroom run` that recorded it.
    pub run: Option<String>,
    /// PID.
    pub pid: Option<u32>,
    /// PID of the parent.
    pub parent_pid: Option<u32>,
    /// The program.
    pub program: Option<String>,
    /// The model, if an option of the command line names it.
    #[serde(default)]
    pub model: Option<String>,
    /// The framework whose memory was recorded.
    pub framework: Option<String>,
    /// The program that started it: `torchrun`, `slurm`, `openmpi`.
    #[serde(default)]
    pub launcher: Option<String>,
    /// Start of the recording.
    pub began_us: Option<u64>,
    /// Its last record.
    pub ended_us: Option<u64>,
    /// The longest time between two of its last records: how much longer it may have run if it was killed.
    pub silence_us: Option<u64>,
    /// How the process ended.
    pub end: End,
    /// The line of a log that reports this.
    #[serde(default)]
    pub ended_line: Option<u64>,
    /// Length of the unreadable end of the file.
    pub torn_bytes: u64,
    /// Number of events.
    pub events: u64,
    /// Whether the recorder lost events.
    pub is_incomplete: bool,
    /// Its devices.
    pub devices: Vec<DeviceRow>,
    /// Its largest resident host memory.
    pub host_peak_bytes: Option<u64>,
    /// Host memory of its cgroup when last measured.
    pub cgroup_bytes: Option<u64>,
    /// Limit of its cgroup.
    pub cgroup_limit_bytes: Option<u64>,
    /// Whether its launcher observed its failure before those of the other ranks.
    pub is_first_failure: bool,
    /// The error that ended it, if its log shows one that is not about memory.
    pub error: Option<String>,
    /// The cause that its own explanation names, as in `why --json`.
    pub cause: String,
    /// How certain that is, as in `why --json`.
    pub certainty: String,
    /// The explanation in one or two sentences.
    pub summary: String,
    /// The first fixes of its explanation.
    pub fixes: Vec<(String, Option<String>)>,
}

/// A device of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceRow {
    /// Its index in the process.
    pub device: u32,
    /// Its UUID, if recorded.
    pub uuid: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// Total memory.
    pub total_bytes: Option<u64>,
    /// Whether the process allocated memory on it. Others are only visible to it.
    pub is_used: bool,
    /// Peak of the memory that the process took from the driver.
    pub peak_bytes: u64,
    /// The same at the end.
    pub last_bytes: u64,
    /// Its CUDA contexts and their code, as far as they were measured.
    pub overhead_bytes: u64,
    /// Memory taken from the driver, times the time it was held.
    #[serde(default)]
    pub held_byte_seconds: u64,
    /// The part of it that the allocator cached: taken from the driver, and not in use by the program.
    #[serde(default)]
    pub cached_byte_seconds: u64,
    /// The part of that in segments that are partly in use, so that the allocator cannot release them.
    #[serde(default)]
    pub fragmented_byte_seconds: u64,
}

/// A kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// An allocation of device memory failed.
    DeviceMemory,
    /// A context could not be created for lack of memory.
    Context,
    /// An allocation of pinned memory failed.
    PinnedMemory,
    /// Host memory ran out.
    HostMemory,
    /// A collective timed out.
    CollectiveTimeout,
    /// Another process closed its connection.
    PeerLost,
    /// The launcher or scheduler ended the process.
    Terminated,
    /// SIGKILL, by the kernel or by someone else.
    Killed,
    /// The process died, and its supervisor does not know why.
    Died,
    /// An exit code that names no reason: that of the process, or of a command that it ran.
    ExitCode,
    /// Another failure.
    Other,
}

impl FailureKind {
    /// Whether it is about memory of this process.
    pub fn is_memory(self) -> bool {
        matches!(self, Self::DeviceMemory | Self::Context | Self::PinnedMemory | Self::HostMemory)
    }
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureRow {
    /// Its recording.
    pub recording: String,
    /// Its kind.
    pub kind: FailureKind,
    /// Time.
    pub time_us: Option<u64>,
    /// The device.
    pub device: Option<u32>,
    /// Size of the request.
    pub requested_bytes: Option<u64>,
    /// Free memory of the device, or what its limit left.
    pub free_bytes: Option<u64>,
    /// The limit of the process (`makeroom run --limit`), if that is what the request exceeded.
    pub limit_bytes: Option<u64>,
    /// Memory that the process held on the device.
    pub held_bytes: Option<u64>,
    /// Line of code.
    pub place: Option<String>,
    /// Allocations that the process made afterward: it caught the error.
    pub later_allocations: u64,
    /// The line of a log that shows it.
    #[serde(default)]
    pub line: Option<u64>,
    /// Other processes on the device: PID and memory in use.
    #[serde(default)]
    pub others: Vec<(u32, u64)>,
    /// PID of the process that it is about, if the recording is that of another one: a launcher's or the kernel's log.
    pub pid: Option<u32>,
    /// What the kernel's log says about that process.
    #[serde(default)]
    pub killed: Option<KilledProcess>,
    /// The collective that timed out.
    #[serde(default)]
    pub collective: Option<Collective>,
}

/// A process that the kernel killed because host memory ran out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KilledProcess {
    /// The name of its main thread.
    pub program: Option<String>,
    /// Its cgroup.
    pub cgroup: Option<String>,
    /// Its host.
    pub host: Option<String>,
}

/// A collective of NCCL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Collective {
    /// The process group, as PyTorch names it. Numbers count only within a group.
    pub group: Option<String>,
    /// Its number in the group.
    pub number: u64,
    /// Its operation: `ALLREDUCE`.
    pub operation: Option<String>,
    /// Its elements: of the input, and of the output.
    pub elements: Option<(u64, u64)>,
}

/// A process that allocates this often after a failure has caught the error.
pub(crate) const CAUGHT: u64 = 8;

impl FailureRow {
    /// The failed allocation that ended a process, of all its failures in order: the first of the last streak. Earlier ones
    /// were caught.
    pub fn decisive<'rows>(failures: impl DoubleEndedIterator<Item = &'rows Self>) -> Option<&'rows Self> {
        failures
            .rev()
            .filter(|failure| failure.kind.is_memory())
            .take_while(|failure| !failure.is_caught())
            .last()
    }

    /// Whether the process went on after it.
    pub(crate) fn is_caught(&self) -> bool {
        self.later_allocations >= CAUGHT
    }

    /// A failure of which only the kind is known.
    pub fn new(recording: String, kind: FailureKind) -> Self {
        Self {
            recording,
            kind,
            time_us: None,
            device: None,
            requested_bytes: None,
            free_bytes: None,
            limit_bytes: None,
            held_bytes: None,
            place: None,
            later_allocations: 0,
            line: None,
            others: Vec::new(),
            pid: None,
            killed: None,
            collective: None,
        }
    }
}

/// Live memory of one line of code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteRow {
    /// Its recording.
    pub recording: String,
    /// The device.
    pub device: u32,
    /// The line, as `file:line function`.
    pub place: String,
    /// Live bytes at the failure; at the peak if nothing failed.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// One step, or one of equal parts of a recording without steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRow {
    /// Its recording.
    pub recording: String,
    /// The device.
    pub device: u32,
    /// Its number, from 0. If there are more than 200 steps, neighbors are merged.
    pub step: u32,
    /// Peak of held memory.
    pub peak_bytes: u64,
    /// Least held memory.
    pub floor_bytes: u64,
}

/// Memory of one device over time: at most 200 points. The three columns have the same length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesRow {
    /// Its recording.
    pub recording: String,
    /// The device.
    pub device: u32,
    /// Microseconds since the recording began, ascending. Each point stands for the time since the previous one.
    pub elapsed_us: Vec<u64>,
    /// Memory held at that time.
    pub held_bytes: Vec<u64>,
    /// Peak since the previous point.
    pub peak_bytes: Vec<u64>,
}

impl SeriesRow {
    /// Memory held at a time since the recording began.
    pub fn held_at(&self, elapsed_us: u64) -> u64 {
        let after = self.elapsed_us.partition_point(|&time| time <= elapsed_us);
        after.checked_sub(1).and_then(|index| self.held_bytes.get(index)).copied().unwrap_or(0)
    }
}

/// A file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unread {
    /// Its name.
    pub file: String,
    /// Why.
    pub reason: String,
}
