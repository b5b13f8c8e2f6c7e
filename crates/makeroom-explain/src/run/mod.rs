//! What a recorded process left behind or missed, beside what was refused: kernels that did not start, memory that was
//! never freed, frees that wait, contexts, the host's memory.
//!
//! ```text
//! summarise.rs   from the recording to the facts
//! left.rs        what was there at the end, by who asked for it
//! launches.rs    why a kernel did not start
//! contexts.rs    contexts that were left, and those that were refused
//! host.rs        whether the process's memory on the host grows without end
//! pools.rs       what expandable segments and makeroom's own pool saved
//! judge.rs       what the facts mean for the verdict
//! ```

mod contexts;
mod host;
mod judge;
mod launches;
mod left;
mod pools;
mod summarise;

use makeroom_core::{AskedMeanwhile, Bytes, DeviceIndex, PendingFrees, ProcessEnd};

pub(crate) use judge::{judge, judge_failures, judge_missing};
pub(crate) use summarise::summarise;

/// One process from its beginning to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// The program's name.
    pub program: String,
    /// Its number.
    pub pid: u32,
    /// How it ended; `None` when it had no chance to say so, or still runs.
    pub end: Option<ProcessEnd>,
    /// The most that was taken from the driver at once, of each device.
    pub peaks: Vec<(DeviceIndex, Bytes)>,
    /// The most host memory that was pinned at once.
    pub pinned_peak: Bytes,
    /// What `makeroom run --limit` let it take.
    pub limit: Option<Bytes>,
    /// Allocations of device memory that were refused for good.
    pub refusals: u64,
    /// Requests for pinned memory that were refused, and the largest of them.
    pub pinned_refusals: u64,
    /// See `pinned_refusals`.
    pub largest_pinned_refused: Bytes,
    /// Contexts for which there was no memory.
    pub refused_contexts: Option<RefusedContexts>,
    /// Kernels that did not start, each kind once.
    pub failed_launches: Vec<LaunchFailure>,
    /// What kernels that call malloc share; `None` when none was seen.
    pub kernel_heap: Option<KernelHeap>,
    /// What was there at the end and nobody gave back.
    pub left: Vec<Leftover>,
    /// What libraries asked for themselves and keep to the end, as they do.
    pub held_by_libraries: Vec<LibraryHold>,
    /// What frameworks keep to the end, as they do.
    pub kept: Vec<Kept>,
    /// What PyTorch's expandable segments saved, of each device where it used them.
    pub expandable: Vec<ExpandableSummary>,
    /// What makeroom's own pool did (`makeroom run --pool`), of each device that it served.
    pub pools: Vec<PoolSummary>,
    /// Frees in stream order that were not known to be complete.
    pub pending: Vec<WaitingFrees>,
    /// Contexts that were made and never destroyed, by place; primary ones are the runtime's and not among them.
    pub contexts: Vec<LeftContext>,
    /// Device memory that went with its context.
    pub freed_with_contexts: Bytes,
    /// The process's memory on the host, if it grew.
    pub host_growth: Option<HostGrowth>,
    /// Events that the recorder could not keep.
    pub dropped: u64,
    /// How long it was recorded, in microseconds.
    pub recorded_us: u64,
    /// What keeps the recording from telling how the process ended.
    pub missing: Option<Missing>,
    /// What the recorder remarked.
    pub remarks: Vec<String>,
}

impl RunSummary {
    /// Whether the process came to its end by itself: only then is what is left left.
    pub fn has_exited(&self) -> bool {
        matches!(self.end, Some(ProcessEnd::Exited(_)))
    }

    /// Whether nothing that was recorded failed.
    pub fn is_without_failure(&self) -> bool {
        self.refusals == 0
            && self.pinned_refusals == 0
            && self.refused_contexts.is_none()
            && self.failed_launches.is_empty()
    }

    /// Whether there is nothing to say but the peak.
    pub fn is_clean(&self) -> bool {
        self.is_without_failure()
            && self.kernel_heap.is_none()
            && self.left.is_empty()
            && self.pending.is_empty()
            && self.contexts.is_empty()
            && self.host_growth.is_none()
    }
}

/// What keeps a recording from telling how its process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It has no end: the process was killed, or the recorder could not write any more.
    End,
    /// Its last bytes are torn.
    Torn(Bytes),
    /// The recorder stepped aside before the process ended.
    Rest,
}

/// Contexts for which there was no memory, and who held it when the first of them was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedContexts {
    /// How many.
    pub count: u64,
    /// The device.
    pub device: DeviceIndex,
    /// What the first of them would have taken, where that is known.
    pub bytes: Bytes,
    /// Who asked.
    pub site: Option<String>,
    /// What was free, if somebody looked.
    pub free: Option<Bytes>,
    /// What this process had taken.
    pub held: Bytes,
    /// How many contexts it had, and what they took.
    pub contexts: u64,
    /// See `contexts`.
    pub context_bytes: Bytes,
    /// What other processes held, as far as it was measured.
    pub others: Bytes,
}

/// A kernel that did not start.
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
    /// Shared memory that was asked for beside what the kernel declares.
    pub shared_memory: Bytes,
    /// The reason, as a part of a sentence.
    pub reason: String,
    /// Whether it asked for more of something than there is.
    pub is_for_resources: bool,
    /// Whether the reason follows from the figures alone.
    pub is_certain: bool,
    /// Who started it.
    pub site: Option<String>,
}

/// The heap inside of kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelHeap {
    /// What all kernels together can take.
    pub limit: Bytes,
    /// Whether the program never set it.
    pub is_default: bool,
    /// How many modules call malloc.
    pub modules: u64,
}

/// Which memory was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftKind {
    /// Memory of a device.
    Device(DeviceIndex),
    /// Pinned host memory.
    Pinned,
    /// The program's own host memory that it pinned later.
    Registered,
}

/// Memory that was there at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Which.
    pub kind: LeftKind,
    /// How much.
    pub bytes: Bytes,
    /// In how many allocations.
    pub allocations: u64,
    /// Who asked for it, the most first: Σ = `bytes`.
    pub sites: Vec<LeftSite>,
}

/// Memory that a library asked for itself and keeps to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibraryHold {
    /// The library.
    pub by: &'static str,
    /// Which memory.
    pub kind: LeftKind,
    /// How much.
    pub bytes: Bytes,
    /// In how many allocations.
    pub allocations: u64,
}

/// A place that left memory behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftSite {
    /// The place; `None` where no stack was recorded.
    pub place: Option<String>,
    /// The line of the program that called it.
    pub caller: Option<String>,
    /// What it called.
    pub through: Option<String>,
    /// How much.
    pub bytes: Bytes,
    /// In how many allocations.
    pub allocations: u64,
}

/// What a framework keeps to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The device.
    pub device: DeviceIndex,
    /// The framework.
    pub by: &'static str,
    /// What of it was in use.
    pub live: Bytes,
    /// What of it was not.
    pub cached: Bytes,
}

/// PyTorch with expandable segments on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpandableSummary {
    /// The device.
    pub device: DeviceIndex,
    /// The most that was live in PyTorch's segments at once.
    pub peak_live: Bytes,
    /// The most that PyTorch reserved at once.
    pub peak_reserved: Bytes,
    /// What its default allocator takes for the same requests, by running them; `None` where that cannot be told.
    pub native_reserved: Option<Bytes>,
}

/// What makeroom's own pool did on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSummary {
    /// The device.
    pub device: DeviceIndex,
    /// The most that the program used at once.
    pub peak_live: Bytes,
    /// The most that the pool took of the device for it.
    pub peak_reserved: Bytes,
    /// What PyTorch's default allocator and the driver take for the same requests, by running them; `None` where PyTorch did
    /// not make them, or where that cannot be told.
    pub native_reserved: Option<Bytes>,
    /// Whether PyTorch's memory was not the pool's: then the pool served other libraries.
    pub is_beside_torch: bool,
    /// The most memory of the host that stood in for the device's.
    pub spilled_peak: Bytes,
    /// How many blocks lay there.
    pub spilled_blocks: u64,
    /// About how long the GPU takes to read all of it once, over the bus, in microseconds.
    pub spilled_read_us: u64,
    /// And how long if it were the device's own.
    pub device_read_us: u64,
}

/// Frees in stream order of one device that were not known to be complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingFrees {
    /// The device.
    pub device: DeviceIndex,
    /// At the end.
    pub at_end: PendingFrees,
    /// At the first refusal.
    pub at_refusal: Option<PendingFrees>,
    /// The largest request outside of the pools meanwhile, and who made it.
    pub asked: Option<(AskedMeanwhile, Option<String>)>,
}

/// Contexts that were never destroyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftContext {
    /// Who made them.
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
    /// How long that took.
    pub seconds: u64,
    /// Whether it rose all the time.
    pub is_steady: bool,
    /// What the process's control group may use.
    pub limit: Option<Bytes>,
}
