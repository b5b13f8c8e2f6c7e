//! The parts of a process recording other than device events.
//!
//! Pinned memory, contexts, code and measurements are few and diverse, so they are lists of rows, not columns of
//! events. Times are in microseconds since the epoch, as everywhere in a trace.

use std::collections::BTreeMap;

use crate::identity::JobIdentity;
use crate::{Address, Bytes, DeviceIndex, Event, Ranges, StackId};

/// A recorded process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessRecord {
    /// Its identity.
    pub identity: ProcessIdentity,
    /// How it ended; `None` if it could not record that, as after `kill -9`, or is still running.
    pub end: Option<ProcessEnd>,
    /// The devices that it saw; older recordings have only those that it used.
    pub devices: Vec<DeviceIdentity>,
    /// The threads that used device memory, by their IDs in the system, in order of first use. Events refer to them.
    pub threads: Vec<u64>,
    /// Number of recorded calls by kind, in the order of the format's numbers.
    pub calls: Vec<CallCount>,
    /// Whether a framework's own blocks were recorded. If so, they are the allocations of the trace, and driver
    /// memory of that framework is segments.
    pub sees_tensors: bool,
    /// The limit that the recorder imposed on each device (`--limit`); `None` if there was none.
    pub limit: Option<Bytes>,
    /// Pinned host memory.
    pub pinned: PinnedMemory,
    /// Stream-ordered frees that are not known to be complete, for each device that has some.
    pub stream_frees: Vec<StreamFrees>,
    /// Device memory that was not freed before its context was destroyed.
    pub freed_with_contexts: Bytes,
    /// Contexts, in order of creation.
    pub contexts: Vec<ContextRecord>,
    /// Modules and libraries of kernels, in order of loading.
    pub code: Vec<CodeRecord>,
    /// Limits set on the device heap, in order.
    pub heap_limits: Vec<HeapLimit>,
    /// Kernels that failed to launch, one entry per kind, in order of the first failure.
    pub failed_launches: Vec<FailedLaunch>,
    /// The devices' own figures, by device and time.
    pub device_samples: Vec<DeviceSample>,
    /// Memory that the driver kept beyond live allocations, for each of `device_samples`.
    pub driver_keeps: Vec<DriverKeeps>,
    /// The system's figures for the process, by time.
    pub host_samples: Vec<HostSample>,
    /// Notes from the recorder, by time. Important ones are also in the trace's notes.
    pub remarks: Vec<Remark>,
    /// Final failures that do not come from the framework whose blocks were recorded, as a device and an event index.
    /// That framework's cache could not have served them.
    pub refused_to_others: Vec<(DeviceIndex, usize)>,
    /// Failures that a framework reported without calling the driver, because of a limit of its own; in the same
    /// form.
    pub refused_unasked: Vec<(DeviceIndex, usize)>,
    /// Contexts that could not be created for lack of memory, in order.
    pub refused_contexts: Vec<RefusedContext>,
    /// Devices on which makeroom's own pool served memory (`--pool`). Its mappings are segments of the trace, in
    /// addition to those of a framework with its own allocator.
    pub pools: Vec<PoolUse>,
    /// Devices on which PyTorch's segments were paged (`--pool`). Their mappings count as the pool's.
    pub pages: Vec<PagesUse>,
    /// Requests that failed in the driver and succeeded when they were retried.
    pub refused_then_served: u64,
    /// Failed requests for device memory as the recorder counts them while the program runs: with those that were
    /// retried, and without the driver's once a framework reports its own.
    pub refused_as_reported: u64,
    /// Events that the recorder dropped.
    pub dropped: u64,
    /// The history that a bounded recording left out; `None` if it has all of it.
    pub compacted: Option<CompactedHistory>,
    /// Length of the unreadable end of the file.
    pub unread: Bytes,
    /// Time from the start of the recording to its last record, in microseconds.
    pub recorded_us: u64,
    /// The longest time between two of the last records, in microseconds. A process that was killed may have run this
    /// much longer than its recording.
    pub silence_us: u64,
}

/// The identity of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// ID of the run: equal for all processes of one run.
    pub run: [u8; 16],
    /// PID.
    pub pid: u32,
    /// PID of the parent.
    pub parent_pid: u32,
    /// Host name.
    pub host: String,
    /// Path of the executable.
    pub executable: String,
    /// Working directory at the start, if recorded.
    pub working_directory: Option<String>,
    /// The command line, one entry per argument.
    pub command_line: Vec<String>,
    /// The recorded environment variables, by name: those that affect memory.
    pub environment: BTreeMap<String, String>,
    /// Its place in a job of many processes.
    pub job: JobIdentity,
    /// Start of the recording.
    pub began_us: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It exited with this status.
    Exited(u32),
    /// It replaced itself with another program (`exec`).
    Replaced,
    /// A signal ended it.
    Signalled(u32),
    /// Recording was turned off before the process ended.
    Detached,
    /// A way that only a later version knows.
    Other,
}

/// Number of recorded calls of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallCount {
    /// The name in the format: `device_alloc`, `tensor_free`, ….
    pub what: &'static str,
    /// Successful calls.
    pub done: u64,
    /// Failed calls.
    pub failed: u64,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// Its index in the process.
    pub device: DeviceIndex,
    /// Its UUID: `GPU-…`.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// Total memory.
    pub total: Bytes,
}

/// Pinned host memory of a process.
///
/// Σ `live` sizes ≤ `peak`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinnedMemory {
    /// Blocks that were live at the end, by ascending address.
    pub live: Vec<PinnedBlock>,
    /// The peak.
    pub peak: Bytes,
    /// Number of failed requests.
    pub refusals: u64,
    /// The largest failed request.
    pub largest_refused: Bytes,
}

/// A block of pinned host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinnedBlock {
    /// Its address.
    pub address: Address,
    /// Its size.
    pub size: Bytes,
    /// Whether the program allocated it itself and registered it.
    pub is_registered: bool,
    /// The call stack of the request.
    pub stack: StackId,
}

/// Stream-ordered frees of one device that are not known to be complete: neither was their completion recorded, nor
/// was the memory reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFrees {
    /// The device.
    pub device: DeviceIndex,
    /// At the end of the recording.
    pub at_end: PendingFrees,
    /// At the first failed request.
    pub at_refusal: Option<PendingFrees>,
    /// The largest request outside the pools that was made while frees were pending.
    pub asked: Option<AskedMeanwhile>,
}

/// Pending stream-ordered frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingFrees {
    /// Their total size.
    pub bytes: Bytes,
    /// Their number.
    pub frees: u64,
    /// Number of streams.
    pub streams: u64,
}

/// A request outside the pools while frees were pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskedMeanwhile {
    /// Its size.
    pub size: Bytes,
    /// Its call stack.
    pub stack: StackId,
    /// The pending frees.
    pub pending: PendingFrees,
}

/// A context on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextRecord {
    /// The device.
    pub device: DeviceIndex,
    /// Its handle.
    pub handle: u64,
    /// Whether it is the primary context, which the runtime uses. One that is alive at the end is not a leak.
    pub is_primary: bool,
    /// Time of creation.
    pub created_us: u64,
    /// Time of destruction; `None` if that was not recorded.
    pub destroyed_us: Option<u64>,
    /// The call stack of its creation.
    pub stack: StackId,
}

/// Use of makeroom's own pool on a device, beyond the device's events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// The device.
    pub device: DeviceIndex,
    /// All ranges that it ever mapped, and those of PyTorch's paged segments. The pool never releases its addresses, so nothing
    /// else was ever there; PyTorch may, and what the driver then maps there counts as the pool's.
    pub ranges: Ranges,
    /// Indices of allocations that it served and that are not tensors of a framework.
    pub other_allocations: Vec<usize>,
    /// Peak of host memory used instead of device memory.
    pub spilled_peak: Bytes,
    /// Number of blocks there.
    pub spilled_blocks: u64,
}

/// PyTorch's paged memory on a device (`--pool`): physical memory, which the device's events count, and the virtual
/// memory above it, which PyTorch counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagesUse {
    /// The device.
    pub device: DeviceIndex,
    /// Peak bytes in blocks.
    pub peak_live: u64,
    /// Peak bytes of device memory under them.
    pub peak_physical: u64,
    /// Peak bytes of host memory under them.
    pub peak_on_host: u64,
    /// Peak bytes that PyTorch had mapped: `memory_reserved()`, most of which may have had no memory.
    pub peak_mapped: u64,
    /// Pages whose memory moved to another page.
    pub moved: u64,
    /// Waits for the GPU.
    pub waits: u64,
    /// Nanoseconds inside: driver calls, waits, and the handling of PyTorch's reports.
    pub inside_ns: u64,
    /// PyTorch's reports of blocks that were allocated or freed.
    pub reports: u64,
}

/// A figure of [`PagesUse`], by its number in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageFigure {
    /// See [`PagesUse::peak_live`].
    PeakLive = 1,
    /// See [`PagesUse::peak_physical`].
    PeakPhysical = 2,
    /// See [`PagesUse::peak_on_host`].
    PeakOnHost = 3,
    /// See [`PagesUse::peak_mapped`].
    PeakMapped = 4,
    /// See [`PagesUse::moved`].
    Moved = 5,
    /// See [`PagesUse::waits`].
    Waits = 6,
    /// See [`PagesUse::inside_ns`].
    InsideNs = 7,
    /// See [`PagesUse::reports`].
    Reports = 8,
}

impl PageFigure {
    /// All figures, by number.
    pub const ALL: [Self; 8] = [
        Self::PeakLive,
        Self::PeakPhysical,
        Self::PeakOnHost,
        Self::PeakMapped,
        Self::Moved,
        Self::Waits,
        Self::InsideNs,
        Self::Reports,
    ];

    /// The figure with a number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|figure| *figure as u64 == number)
    }
}

impl PagesUse {
    /// One of the figures.
    pub fn figure_mut(&mut self, figure: PageFigure) -> &mut u64 {
        match figure {
            PageFigure::PeakLive => &mut self.peak_live,
            PageFigure::PeakPhysical => &mut self.peak_physical,
            PageFigure::PeakOnHost => &mut self.peak_on_host,
            PageFigure::PeakMapped => &mut self.peak_mapped,
            PageFigure::Moved => &mut self.moved,
            PageFigure::Waits => &mut self.waits,
            PageFigure::InsideNs => &mut self.inside_ns,
            PageFigure::Reports => &mut self.reports,
        }
    }

    /// All figures, with their numbers in a recording.
    pub fn figures(mut self) -> [(u64, u64); 8] {
        PageFigure::ALL.map(|figure| (figure as u64, *self.figure_mut(figure)))
    }
}

/// A context that could not be created for lack of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedContext {
    /// The device.
    pub device: DeviceIndex,
    /// The memory it needed; 0 if unknown.
    pub size: Bytes,
    /// Time.
    pub time_us: u64,
    /// The call stack of its creation.
    pub stack: StackId,
}

/// A module or a library of kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeRecord {
    /// The current device; the code may also be loaded for others.
    pub device: DeviceIndex,
    /// Its handle.
    pub handle: u64,
    /// Size of its image; 0 if unknown.
    pub size: Bytes,
    /// Whether it calls malloc on the device, which uses the device heap.
    pub imports_malloc: bool,
    /// Time of loading.
    pub loaded_us: u64,
    /// Time of unloading; `None` if that was not recorded.
    pub unloaded_us: Option<u64>,
    /// The call stack of the load.
    pub stack: StackId,
}

/// A limit on the device heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapLimit {
    /// The device.
    pub device: DeviceIndex,
    /// The limit.
    pub limit: Bytes,
    /// Time it was set.
    pub time_us: u64,
    /// The call stack of the call.
    pub stack: StackId,
}

/// A kernel that failed to launch, at one call stack, for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedLaunch {
    /// The device.
    pub device: DeviceIndex,
    /// The kernel's name; `None` when unknown.
    pub kernel: Option<String>,
    /// The driver's error code.
    pub error: u32,
    /// Requested dynamic shared memory.
    pub shared_memory: Bytes,
    /// Number of failures.
    pub count: u64,
    /// Time of the first one.
    pub first_us: u64,
    /// The call stack of the launch.
    pub stack: StackId,
}

/// The older part of a bounded recording (`--ring`), reduced to the events whose effect was still there: live memory is
/// complete, peaks and failures before that time are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactedHistory {
    /// From this time on, the recording is complete.
    pub until_us: u64,
    /// Number of events left out.
    pub events: u64,
    /// Failed requests for memory among them.
    pub failures: u64,
}

/// A device's own figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSample {
    /// Time.
    pub time_us: u64,
    /// The device.
    pub device: DeviceIndex,
    /// Its free memory.
    pub free: Bytes,
    /// Its total memory.
    pub total: Bytes,
    /// How many of the device's events came before it. Times alone do not tell: a program can allocate, be sampled and
    /// free within one microsecond. `None` if only the times are known.
    pub events_before: Option<usize>,
    /// The sampling thread, as an index into [`ProcessRecord::threads`]. `None` if unknown, or if the thread has no memory
    /// events.
    pub thread: Option<usize>,
}

impl DeviceSample {
    /// Whether an event of the device, at its position among them, came before the sample.
    pub fn is_after(&self, position: usize, event: &Event) -> bool {
        self.events_before.map_or(event.time_us <= self.time_us, |count| position < count)
    }
}

/// Memory that the driver kept beyond live allocations, at the time of a device sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverKeeps {
    /// Time.
    pub time_us: u64,
    /// The device.
    pub device: DeviceIndex,
    /// In the default pool of stream-ordered memory.
    pub streams: Bytes,
    /// For graphs.
    pub graphs: Bytes,
    /// Physical memory that is not mapped.
    pub unmapped: Bytes,
}

/// The system's figures for the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostSample {
    /// Time.
    pub time_us: u64,
    /// Its resident memory.
    pub resident: Option<Bytes>,
    /// The cgroup's memory usage.
    pub cgroup_usage: Option<Bytes>,
    /// The cgroup's memory limit.
    pub cgroup_limit: Option<Bytes>,
    /// Pinned memory, counted by the recorder.
    pub pinned: Option<Bytes>,
}

/// A note from the recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remark {
    /// Time.
    pub time_us: u64,
    /// Whether something is missing from the recording.
    pub is_warning: bool,
    /// Its text.
    pub text: String,
}

impl ProcessRecord {
    /// The sample of a device closest to a time: recorders take one when a request fails.
    pub fn device_sample_near(&self, device: DeviceIndex, time_us: u64) -> Option<DeviceSample> {
        let later = self
            .device_samples
            .partition_point(|sample| (sample.device, sample.time_us) <= (device, time_us));
        let before = later.checked_sub(1).and_then(|position| self.device_samples.get(position));
        let nearest = before.into_iter().chain(self.device_samples.get(later));
        let ours = nearest.filter(|sample| sample.device == device);
        ours.min_by_key(|sample| sample.time_us.abs_diff(time_us)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_closest_in_time_is_taken() {
        let sample = |time_us, device, free| DeviceSample {
            time_us,
            device: DeviceIndex(device),
            free: Bytes::new(free),
            total: Bytes::gib(1),
            events_before: None,
            thread: None,
        };
        let record = ProcessRecord {
            device_samples: vec![sample(10, 0, 1), sample(100, 0, 3), sample(20, 1, 2)],
            ..ProcessRecord::default()
        };
        let free = |device, time_us| {
            record.device_sample_near(DeviceIndex(device), time_us).map(|sample| sample.free.get())
        };
        assert_eq!(free(0, 0), Some(1));
        assert_eq!(free(0, 50), Some(1));
        assert_eq!(free(0, 99), Some(3));
        assert_eq!(free(0, 1000), Some(3));
        assert_eq!(free(1, 1000), Some(2));
        assert_eq!(free(2, 1000), None);
    }
}
