//! A recording in memory: the GPU memory operations of one process, in order.
//!
//! What a file did not say is `None`, never a guess.

use crate::{
    Action, Address, Bytes, DeviceIndex, Events, PoolId, ProcessRecord, StackId, Stacks, Start, StreamId,
};

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

impl DeviceTrace {
    /// The time of the first failed allocation.
    fn first_failure_us(&self) -> Option<u64> {
        let index = self.events.actions().iter().position(|&action| action == Action::OutOfMemory)?;
        self.events.get(index).map(|event| event.time_us)
    }

    /// The most memory that was live at once.
    fn peak_live(&self) -> Bytes {
        let mut live = Start::new(self).live();
        let mut peak = live;
        for event in self.events.iter() {
            match event.action {
                Action::Alloc => live += event.size,
                Action::FreeCompleted => live = live - event.size,
                _ => {}
            }
            peak = peak.max(live);
        }
        peak
    }
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

    /// A device by its index, or the default one, which is the same in all commands: the one whose allocation failed first,
    /// else the one with the highest peak of live memory.
    pub fn device(&self, index: Option<DeviceIndex>) -> Option<&DeviceTrace> {
        if let Some(index) = index {
            return self.devices.iter().find(|device| device.device == index);
        }
        if let [only] = self.devices.as_slice() {
            return Some(only);
        }
        let failed = self.devices.iter().filter_map(|device| Some((device.first_failure_us()?, device)));
        let fullest = || {
            let rank = |device: &&DeviceTrace| (device.peak_live(), std::cmp::Reverse(device.device));
            self.devices.iter().max_by_key(rank)
        };
        failed.min_by_key(|&(time_us, _)| time_us).map(|(_, device)| device).or_else(fullest)
    }

    /// Number of events on all devices.
    pub fn event_count(&self) -> usize {
        self.devices.iter().map(|device| device.events.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    fn device(index: u32, events: &[(Action, u64, u64)]) -> DeviceTrace {
        let mut device = DeviceTrace { device: DeviceIndex(index), ..DeviceTrace::default() };
        for (time_us, &(action, address, size)) in (10 * u64::from(index)..).zip(events) {
            device.events.push(Event { time_us, ..Event::new(action, address, size) });
        }
        device
    }

    #[test]
    fn the_default_device_is_the_one_that_failed_or_the_fullest() {
        use Action::{Alloc, FreeCompleted, OutOfMemory};
        let chosen = |devices: &[&DeviceTrace]| {
            let mut trace = Trace::new(TraceKind::TorchSnapshot);
            trace.devices = devices.iter().copied().cloned().collect();
            trace.device(None).map(|device| device.device.0)
        };
        let busy = device(0, &[(Alloc, 512, 9), (FreeCompleted, 512, 9), (Alloc, 512, 9)]);
        let full = device(1, &[(Alloc, 512, 100)]);
        let failed = device(2, &[(Alloc, 512, 1), (OutOfMemory, 0, 50)]);
        let failed_later = device(3, &[(Alloc, 512, 200), (OutOfMemory, 0, 50)]);
        assert_eq!(chosen(&[]), None);
        assert_eq!(chosen(&[&busy]), Some(0));
        // Not the one with the most events.
        assert_eq!(chosen(&[&busy, &full]), Some(1));
        assert_eq!(chosen(&[&busy, &full, &failed_later, &failed]), Some(2));
        // Equally full: the first. Memory that is older than the recording counts.
        assert_eq!(chosen(&[&device(4, &[(Alloc, 512, 9)]), &busy]), Some(0));
        assert_eq!(chosen(&[&full, &device(5, &[(FreeCompleted, 512, 101)])]), Some(5));
    }
}
