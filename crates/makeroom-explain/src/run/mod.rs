//! Findings about a recorded process other than failed allocations: kernels that failed to launch, memory that was
//! never freed, pending frees, contexts, host memory.
//!
//! ```text
//! summarise.rs   builds the facts from the recording
//! left.rs        memory still allocated at the end, by the code that allocated it
//! launches.rs    why a kernel failed to launch
//! contexts.rs    contexts that were never destroyed or that could not be created
//! host.rs        detects host memory that grows without bound
//! pools.rs       savings from expandable segments and makeroom's pool
//! judge.rs       turns the facts into causes and a verdict
//! ```

mod contexts;
mod host;
mod judge;
mod launches;
mod left;
mod pools;
mod summarise;

use makeroom_core::identity::JobIdentity;
use makeroom_core::{
    AskedMeanwhile, Bytes, DeviceIndex, Holder, Library, PagesUse, PendingFrees, ProcessEnd,
};

pub(crate) use judge::{judge, judge_failures, judge_missing};
pub(crate) use summarise::summarise;

/// One process from start to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// The program's name.
    pub program: String,
    /// Its PID.
    pub pid: u32,
    /// Its place in a job of many processes.
    pub job: JobIdentity,
    /// How it ended; `None` if it was killed or is still running.
    pub end: Option<ProcessEnd>,
    /// Peak memory allocated from the driver, by device.
    pub peaks: Vec<(DeviceIndex, Bytes)>,
    /// Peak pinned host memory.
    pub pinned_peak: Bytes,
    /// The limit set by `makeroom run --limit`.
    pub limit: Option<Bytes>,
    /// Failed allocations of device memory, not counting those that a retry satisfied.
    pub refusals: u64,
    /// The failed allocations of device and pinned memory that the recording contains, as the recorder counted them
    /// while the program ran.
    pub reported: u64,
    /// Number of failed allocations of pinned memory, and the size of the largest.
    pub pinned_refusals: u64,
    /// See `pinned_refusals`.
    pub largest_pinned_refused: Bytes,
    /// Contexts that could not be created for lack of memory.
    pub refused_contexts: Option<RefusedContexts>,
    /// Kernels that failed to launch, each kind once.
    pub failed_launches: Vec<LaunchFailure>,
    /// The heap of kernels that call malloc; `None` if there are none.
    pub kernel_heap: Option<KernelHeap>,
    /// Memory that was never freed.
    pub left: Vec<Leftover>,
    /// Memory that libraries keep until exit, which is normal.
    pub held_by_libraries: Vec<LibraryHold>,
    /// Memory that frameworks keep until exit, which is normal.
    pub kept: Vec<Kept>,
    /// Savings from PyTorch's expandable segments, for each device with them.
    pub expandable: Vec<ExpandableSummary>,
    /// Use of makeroom's pool (`makeroom run --pool`), for each device that it served.
    pub pools: Vec<PoolSummary>,
    /// PyTorch's paged memory (`makeroom run --pool`), for each device.
    pub pages: Vec<PagesUse>,
    /// Stream-ordered frees that were not known to be complete.
    pub pending: Vec<WaitingFrees>,
    /// Contexts that were never destroyed, by site. Primary contexts belong to the runtime and are not included.
    pub contexts: Vec<LeftContext>,
    /// Device memory released with its context.
    pub freed_with_contexts: Bytes,
    /// Growth of the process's host memory, if any.
    pub host_growth: Option<HostGrowth>,
    /// Number of events that the recorder dropped.
    pub dropped: u64,
    /// Length of the recording, in microseconds.
    pub recorded_us: u64,
    /// Why the recording does not show how the process ended.
    pub missing: Option<Missing>,
    /// Notes from the recorder.
    pub remarks: Vec<String>,
}

impl RunSummary {
    /// Whether the process exited by itself: only then is leftover memory a finding.
    pub fn has_exited(&self) -> bool {
        matches!(self.end, Some(ProcessEnd::Exited(_)))
    }

    /// Whether no recorded operation failed.
    pub fn is_without_failure(&self) -> bool {
        self.refusals == 0
            && self.pinned_refusals == 0
            && self.refused_contexts.is_none()
            && self.failed_launches.is_empty()
    }

    /// Whether there is nothing to report but the peak.
    pub fn is_clean(&self) -> bool {
        self.is_without_failure()
            && self.kernel_heap.is_none()
            && self.left.is_empty()
            && self.pending.is_empty()
            && self.contexts.is_empty()
            && self.host_growth.is_none()
    }
}

/// Why a recording does not show how its process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It has no end: the process was killed, or the recorder could no longer write.
    End,
    /// Its last bytes are damaged.
    Torn(Bytes),
    /// The recorder stopped before the process ended.
    Rest,
}

/// Contexts that could not be created, and how memory was used when the first one failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedContexts {
    /// How many.
    pub count: u64,
    /// The device.
    pub device: DeviceIndex,
    /// The size of the first one, if known.
    pub bytes: Bytes,
    /// The code that requested it.
    pub site: Option<String>,
    /// Free memory, if it was sampled.
    pub free: Option<Bytes>,
    /// Memory allocated by this process.
    pub held: Bytes,
    /// The number of its contexts, and their memory.
    pub contexts: u64,
    /// See `contexts`.
    pub context_bytes: Bytes,
    /// Memory of other processes, as far as it was measured.
    pub others: Bytes,
}

/// A kernel that failed to launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFailure {
    /// Its name.
    pub kernel: Option<String>,
    /// How often.
    pub count: u64,
    /// The driver's error.
    pub error: u32,
    /// The error's name.
    pub error_name: &'static str,
    /// Dynamic shared memory, in addition to what the kernel declares.
    pub shared_memory: Bytes,
    /// The reason, as part of a sentence.
    pub reason: String,
    /// Whether it requested more of a resource than exists.
    pub is_for_resources: bool,
    /// Whether the reason follows from the figures alone.
    pub is_certain: bool,
    /// The code that launched it.
    pub site: Option<String>,
}

/// The in-kernel heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelHeap {
    /// Its size, shared by all kernels.
    pub limit: Bytes,
    /// Whether the program did not set the size.
    pub is_default: bool,
    /// The number of modules that call malloc.
    pub modules: u64,
}

/// A kind of leftover memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftKind {
    /// Memory of a device.
    Device(DeviceIndex),
    /// Pinned host memory.
    Pinned,
    /// The program's own host memory that it registered.
    Registered,
}

/// Memory still allocated at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The kind of memory.
    pub kind: LeftKind,
    /// How much.
    pub bytes: Bytes,
    /// In how many allocations.
    pub allocations: u64,
    /// The code that allocated it, largest first: Σ = `bytes`.
    pub sites: Vec<LeftSite>,
}

/// Memory that a library allocated for itself and keeps until exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibraryHold {
    /// The library.
    pub by: Library,
    /// The kind of memory.
    pub kind: LeftKind,
    /// How much.
    pub bytes: Bytes,
    /// In how many allocations.
    pub allocations: u64,
}

/// A site that left memory allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftSite {
    /// The site; `None` if no stack was recorded.
    pub place: Option<String>,
    /// The line of the program that called it.
    pub caller: Option<String>,
    /// The function it called.
    pub through: Option<String>,
    /// How much.
    pub bytes: Bytes,
    /// In how many allocations.
    pub allocations: u64,
}

/// Memory that a framework keeps until exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The device.
    pub device: DeviceIndex,
    /// The allocator: PyTorch's, or a pool.
    pub by: Holder,
    /// Live memory.
    pub live: Bytes,
    /// Cached memory.
    pub cached: Bytes,
}

/// PyTorch's own allocator on a device, with and without expandable segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpandableSummary {
    /// The device.
    pub device: DeviceIndex,
    /// Whether expandable segments were on.
    pub is_on: bool,
    /// Peak live memory in PyTorch's segments.
    pub peak_live: Bytes,
    /// Peak memory that PyTorch reserved.
    pub peak_reserved: Bytes,
    /// The peak in a replay of the same requests without expandable segments; `None` if it cannot be determined.
    pub native_reserved: Option<Bytes>,
    /// The peak in a replay of the same requests with expandable segments; `None` if it cannot be determined.
    pub expandable_reserved: Option<Bytes>,
    /// The peak in a replay with expandable segments and without the user's other settings; `None` if there were none.
    pub plain_reserved: Option<Bytes>,
    /// The user's other settings, as written.
    pub other_settings: String,
}

/// Use of makeroom's pool on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSummary {
    /// The device.
    pub device: DeviceIndex,
    /// Peak memory in use by the program.
    pub peak_live: Bytes,
    /// Peak memory that the pool reserved for it.
    pub peak_reserved: Bytes,
    /// The peak of PyTorch's default allocator and the driver in a replay of the same requests; `None` if PyTorch did
    /// not make them, or if it cannot be determined.
    pub native_reserved: Option<Bytes>,
    /// The part of it that is PyTorch's.
    pub native_tensors: Option<Bytes>,
    /// Peak memory that libraries other than PyTorch used.
    pub peak_other: Bytes,
    /// Whether the pool served only other libraries, not PyTorch.
    pub is_shared_with_torch: bool,
    /// Peak memory spilled to the host.
    pub spilled_peak: Bytes,
    /// The number of spilled blocks.
    pub spilled_blocks: u64,
    /// About how long the GPU takes to read all spilled memory once over the bus, in microseconds.
    pub spilled_read_us: u64,
    /// The same if it were device memory.
    pub device_read_us: u64,
}

/// Stream-ordered frees on one device that were not known to be complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingFrees {
    /// The device.
    pub device: DeviceIndex,
    /// At the end.
    pub at_end: PendingFrees,
    /// At the first failed allocation.
    pub at_refusal: Option<PendingFrees>,
    /// The largest request outside of the pools while they were pending, and its site.
    pub asked: Option<(AskedMeanwhile, Option<String>)>,
}

/// Contexts that were never destroyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftContext {
    /// The code that created them.
    pub site: Option<String>,
    /// How many.
    pub count: u64,
}

/// The process's resident memory over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostGrowth {
    /// At the beginning.
    pub first: Bytes,
    /// At the end.
    pub last: Bytes,
    /// Seconds between them.
    pub seconds: u64,
    /// Whether it grew steadily.
    pub is_steady: bool,
    /// The limit of the process's cgroup.
    pub limit: Option<Bytes>,
}
