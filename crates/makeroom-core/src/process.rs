//! What a recording of a whole process holds beside the events of its devices.
//!
//! Pinned memory, contexts, code and measurements are few and of many shapes, so they are lists of rows here and not
//! columns of events. Times are in microseconds since the epoch, as everywhere in a trace.

use crate::{Address, Bytes, DeviceIndex, Ranges, StackId};

/// A process, as its recorder saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessRecord {
    /// Who it was.
    pub identity: ProcessIdentity,
    /// How it ended; `None` when it had no chance to say so, as after `kill -9`, or still runs.
    pub end: Option<ProcessEnd>,
    /// The devices it asked about.
    pub devices: Vec<DeviceIdentity>,
    /// How often each kind of call was recorded, in the order of the file's numbers for them.
    pub calls: Vec<CallCount>,
    /// Whether a framework's own blocks were recorded. They are then the allocations of the trace, and what that
    /// framework took from the driver are segments.
    pub sees_tensors: bool,
    /// What the recorder itself let the process take of each device (`--limit`); `None` without a limit.
    pub limit: Option<Bytes>,
    /// Pinned host memory.
    pub pinned: PinnedMemory,
    /// Memory given back in stream order that was not known to be back, of each device that has some.
    pub stream_frees: Vec<StreamFrees>,
    /// Device memory that nobody gave back: it went with its context.
    pub freed_with_contexts: Bytes,
    /// Contexts, in the order of their making.
    pub contexts: Vec<ContextRecord>,
    /// Modules and libraries of kernels, in the order of their loading.
    pub code: Vec<CodeRecord>,
    /// Limits that were set on the in-kernel heap, in order.
    pub heap_limits: Vec<HeapLimit>,
    /// Kernels that did not start, each kind once, in the order of their first failure.
    pub failed_launches: Vec<FailedLaunch>,
    /// What devices said of their memory, by device and time.
    pub device_samples: Vec<DeviceSample>,
    /// What the driver kept for the process beyond what it had handed out, at each of `device_samples`.
    pub driver_keeps: Vec<DriverKeeps>,
    /// What the system said of the process, by time.
    pub host_samples: Vec<HostSample>,
    /// What the recorder remarked, by time. Those that matter are also among the trace's notes.
    pub remarks: Vec<Remark>,
    /// Refusals for good, as a device and a position among its events, of somebody else than the framework whose blocks
    /// were recorded: that one's cache could not serve them.
    pub refused_to_others: Vec<(DeviceIndex, usize)>,
    /// Refusals that a framework made by itself, in the same form: it kept to a limit of its own and asked nobody.
    pub refused_unasked: Vec<(DeviceIndex, usize)>,
    /// Contexts that were refused for want of memory, in order.
    pub refused_contexts: Vec<RefusedContext>,
    /// Devices on which makeroom's own pool served memory (`--pool`). What it mapped are segments of the trace, next to
    /// those of a framework that has an allocator of its own.
    pub pools: Vec<PoolUse>,
    /// Requests that the driver refused and served when they were made again.
    pub refused_then_served: u64,
    /// Events that the recorder could not keep.
    pub dropped: u64,
    /// The torn end of the file.
    pub unread: Bytes,
    /// From the beginning of the recording to its last record, in microseconds.
    pub recorded_us: u64,
}

/// Who a process was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The run it belonged to: equal for all processes that were started together.
    pub run: [u8; 16],
    /// Its number.
    pub pid: u32,
    /// Who started it.
    pub parent_pid: u32,
    /// The machine.
    pub host: String,
    /// The program file.
    pub executable: String,
    /// Where it was started, if recorded.
    pub working_directory: Option<String>,
    /// The command line, word by word.
    pub command_line: Vec<String>,
    /// When recording began.
    pub began_us: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It exited with this status.
    Exited(u32),
    /// It became another program.
    Replaced,
    /// A signal ended it.
    Signalled(u32),
    /// The recorder stepped aside before the process ended.
    Detached,
    /// In a way that a later version knows.
    Other,
}

/// How often one kind of call was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallCount {
    /// What it does, as the format names it: `device_alloc`, `tensor_free`, ….
    pub what: &'static str,
    /// How often the driver, or the framework, did it.
    pub done: u64,
    /// How often it was refused or failed.
    pub failed: u64,
}

/// What is known of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// As the process counts them.
    pub device: DeviceIndex,
    /// Its identity on every machine: `GPU-…`.
    pub uuid: String,
    /// What it is called.
    pub name: String,
    /// Its memory.
    pub total: Bytes,
}

/// Pinned host memory over the life of a process.
///
/// Σ `live` sizes ≤ `peak`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinnedMemory {
    /// What was still there at the end, by ascending address.
    pub live: Vec<PinnedBlock>,
    /// The most that was there at once.
    pub peak: Bytes,
    /// How many requests were refused.
    pub refusals: u64,
    /// The largest of them.
    pub largest_refused: Bytes,
}

/// A piece of pinned host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinnedBlock {
    /// Where it begins.
    pub address: Address,
    /// Its size.
    pub size: Bytes,
    /// Whether it is the program's own memory, pinned later.
    pub is_registered: bool,
    /// Who asked.
    pub stack: StackId,
}

/// Memory of one device that was given back in stream order and was not known to be back: neither did a record say
/// so, nor was it handed out again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFrees {
    /// The device.
    pub device: DeviceIndex,
    /// When the recording ended.
    pub at_end: PendingFrees,
    /// When a request was refused for the first time.
    pub at_refusal: Option<PendingFrees>,
    /// The largest request for memory outside of the pools that was made meanwhile.
    pub asked: Option<AskedMeanwhile>,
}

/// Frees in stream order that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingFrees {
    /// How much they give back.
    pub bytes: Bytes,
    /// How many they are.
    pub frees: u64,
    /// On how many streams.
    pub streams: u64,
}

/// A request for memory outside of the pools while frees waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskedMeanwhile {
    /// How much was asked for.
    pub size: Bytes,
    /// Who asked.
    pub stack: StackId,
    /// What waited.
    pub pending: PendingFrees,
}

/// A context on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextRecord {
    /// The device.
    pub device: DeviceIndex,
    /// Its handle.
    pub handle: u64,
    /// Whether it is the one that the runtime shares. One that is alive when the process ends is no leak.
    pub is_primary: bool,
    /// When it was made.
    pub created_us: u64,
    /// When it was let go; `None` when that was not seen.
    pub destroyed_us: Option<u64>,
    /// Who made it.
    pub stack: StackId,
}

/// What makeroom's own pool did on a device, beside what the device's events say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// The device.
    pub device: DeviceIndex,
    /// Where it ever mapped memory. It keeps its addresses for good, so memory there was never anybody else's.
    pub ranges: Ranges,
    /// Positions among the device's events of allocations that it served and that are no framework's tensors.
    pub other_allocations: Vec<usize>,
    /// The most memory of the host that stood in for the device's at once.
    pub spilled_peak: Bytes,
    /// How many blocks lay there.
    pub spilled_blocks: u64,
}

/// A context for which there was no memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedContext {
    /// The device.
    pub device: DeviceIndex,
    /// What it would have taken, 0 when unknown.
    pub size: Bytes,
    /// When.
    pub time_us: u64,
    /// Who asked for it.
    pub stack: StackId,
}

/// A module or a library of kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeRecord {
    /// The device that was current; code may be loaded for others too.
    pub device: DeviceIndex,
    /// Its handle.
    pub handle: u64,
    /// Its image, 0 when unknown.
    pub size: Bytes,
    /// Whether it calls malloc on the device, which takes from the in-kernel heap.
    pub imports_malloc: bool,
    /// When it was loaded.
    pub loaded_us: u64,
    /// When it was unloaded; `None` when that was not seen.
    pub unloaded_us: Option<u64>,
    /// Who loaded it.
    pub stack: StackId,
}

/// A limit on the in-kernel heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapLimit {
    /// The device.
    pub device: DeviceIndex,
    /// The limit.
    pub limit: Bytes,
    /// When it was set.
    pub time_us: u64,
    /// Who set it.
    pub stack: StackId,
}

/// A kernel that did not start, at one place, for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedLaunch {
    /// The device.
    pub device: DeviceIndex,
    /// The kernel's name; `None` when unknown.
    pub kernel: Option<String>,
    /// The driver's error code.
    pub error: u32,
    /// Dynamic shared memory that was asked for.
    pub shared_memory: Bytes,
    /// How often.
    pub count: u64,
    /// When first.
    pub first_us: u64,
    /// Who launched it.
    pub stack: StackId,
}

/// What a device said of its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSample {
    /// When.
    pub time_us: u64,
    /// The device.
    pub device: DeviceIndex,
    /// Its free memory.
    pub free: Bytes,
    /// All of it.
    pub total: Bytes,
}

/// Memory of a device that the driver kept for the process when the device was asked, beyond what it had handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverKeeps {
    /// When.
    pub time_us: u64,
    /// The device.
    pub device: DeviceIndex,
    /// In the pool of stream-ordered memory that a device always has.
    pub streams: Bytes,
    /// For graphs.
    pub graphs: Bytes,
    /// Physical memory that was created and lies at no address.
    pub unmapped: Bytes,
}

/// What the system said of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostSample {
    /// When.
    pub time_us: u64,
    /// Its resident memory.
    pub resident: Option<Bytes>,
    /// What its control group used.
    pub cgroup_usage: Option<Bytes>,
    /// What its control group may use.
    pub cgroup_limit: Option<Bytes>,
    /// Pinned memory, by the recorder's count.
    pub pinned: Option<Bytes>,
}

/// Something the recorder remarked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remark {
    /// When.
    pub time_us: u64,
    /// Whether the recording lacks something.
    pub is_warning: bool,
    /// What.
    pub text: String,
}

impl ProcessRecord {
    /// The sample of a device that was taken closest to a moment: recorders sample when a request is refused.
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
