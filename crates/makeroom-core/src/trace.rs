//! A recording in memory: the GPU memory operations of one process, in order.
//!
//! What a file did not say is `None`, never a guess.

use crate::{Address, Bytes, DeviceIndex, Events, PoolId, ProcessRecord, StackId, Stacks, StreamId};

/// The source of a trace, which determines the meaning of its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// A PyTorch memory snapshot.
    TorchSnapshot,
    /// The log of RMM's logging resource.
    RmmLog,
    /// A `.room` recording of a whole process.
    Room,
    /// JAX's device memory profile: live buffers, without events.
    JaxProfile,
}

/// One recording.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its source.
    pub kind: TraceKind,
    /// One entry per device that has events or segments.
    pub devices: Vec<DeviceTrace>,
    /// The call stacks that events and blocks refer to.
    pub stacks: Stacks,
    /// The settings of the recorded allocator.
    pub settings: AllocatorSettings,
    /// Named spans of time (`record_function` scopes), in file order.
    pub annotations: Vec<Annotation>,
    /// Pinned host memory of the recorded allocator, as events and segments; `None` if the source does not record it.
    pub host: Option<DeviceTrace>,
    /// The process itself; `None` if the source records only an allocator.
    pub process: Option<ProcessRecord>,
    /// Pinned host memory over time, with its failed requests, as if it were a device; empty if none was recorded.
    pub pinned: DeviceTrace,
    /// Notes for the user about parts of the file that were not understood and skipped.
    pub notes: Vec<String>,
}

/// The recording of one device.
#[derive(Clone, Debug, Default)]
pub struct DeviceTrace {
    /// The device.
    pub device: DeviceIndex,
    /// Its events, in order.
    pub events: Events,
    /// The allocator's segments at the end of the recording, by ascending address. Empty if the source has none.
    pub segments: Vec<Segment>,
    /// Whether the recorder lost the oldest events; `None` if it does not record that.
    pub overflowed: Option<bool>,
}

/// A segment of driver memory at the end of a recording.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// Its address.
    pub address: Address,
    /// Its size. For expandable segments: one contiguous mapped range.
    pub size: Bytes,
    /// The stream it serves.
    pub stream: StreamId,
    /// Whether it belongs to the pool of small blocks.
    pub is_small: bool,
    /// The memory pool it belongs to.
    pub pool: PoolId,
    /// Whether it grows by mapping pages.
    pub is_expandable: bool,
    /// Its blocks, by ascending address, without gaps: Σ blocks = size.
    pub blocks: Vec<Block>,
    /// The call stack of its allocation.
    pub stack: StackId,
}

/// The state of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// In use by the program.
    Live,
    /// Freed, waiting for a stream.
    PendingFree,
    /// Cached by the allocator.
    #[default]
    Free,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    /// Its address.
    pub address: Address,
    /// Its size, including rounding.
    pub size: Bytes,
    /// Requested size; `None` if the recorder does not write it. Stale for free blocks.
    pub requested: Option<Bytes>,
    /// Its state.
    pub state: BlockState,
    /// The call stack of its allocation.
    pub stack: StackId,
}

/// The recorded allocator's settings, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatorSettings {
    /// The settings string the user gave (`PYTORCH_ALLOC_CONF`).
    pub text: Option<String>,
    /// Blocks of this size and larger are not split; `u64::MAX` means no limit.
    pub max_split_size: Option<Bytes>,
    /// The share of the limit above which unused blocks are freed; 0 is off.
    pub garbage_collection_threshold: Option<f64>,
    /// Whether segments grow by mapping pages.
    pub expandable_segments: Option<bool>,
    /// Number of divisions per power of two to which sizes are rounded up, for 1 MiB, 2 MiB, … 32 GiB.
    pub roundup_power2_divisions: Option<[u32; 16]>,
    /// If makeroom's own pool wrote the recording: its limit on each device, by index; 0 if it has no limit, or if
    /// several pools have one each. `None` if PyTorch's allocator wrote it.
    pub pool_limits: Option<Vec<Bytes>>,
}

impl AllocatorSettings {
    /// The limit of makeroom's own pool on a device.
    pub fn pool_limit(&self, device: DeviceIndex) -> Option<Bytes> {
        let limit = self.pool_limits.as_ref()?.get(device.0 as usize)?;
        (!limit.is_zero()).then_some(*limit)
    }
}

/// The start or the end of a named span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Its name.
    pub name: String,
    /// Start or end.
    pub stage: AnnotationStage,
    /// Its device, if known.
    pub device: Option<DeviceIndex>,
    /// Time in microseconds since the epoch.
    pub time_us: u64,
}

/// Whether an [`Annotation`] is the start or the end of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationStage {
    /// The start.
    Start,
    /// The end.
    End,
}

impl Trace {
    /// An empty trace, for an importer to fill.
    pub fn new(kind: TraceKind) -> Self {
        Self {
            kind,
            devices: Vec::new(),
            stacks: Stacks::default(),
            settings: AllocatorSettings::default(),
            annotations: Vec::new(),
            host: None,
            process: None,
            pinned: DeviceTrace::default(),
            notes: Vec::new(),
        }
    }

    /// A device by its index, or the one with the most events.
    pub fn device(&self, index: Option<DeviceIndex>) -> Option<&DeviceTrace> {
        match index {
            Some(index) => self.devices.iter().find(|device| device.device == index),
            None => self
                .devices
                .iter()
                .max_by_key(|device| (device.events.len(), std::cmp::Reverse(device.device))),
        }
    }

    /// Number of events on all devices.
    pub fn event_count(&self) -> usize {
        self.devices.iter().map(|device| device.events.len()).sum()
    }
}
