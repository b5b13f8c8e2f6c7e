//! A recording in memory: what one process asked of its GPUs, in order.
//!
//! Events are columns, not structs: a recording of ten million events is then some 250 MB instead of several GB,
//! and a pass over one column touches only that column. What a file did not say is `None`, never a guess.

use crate::column::Column;
use crate::{Address, Bytes, DeviceIndex, FastMap, PoolId, ProcessRecord, StackId, Stacks, StreamId};

/// Where a trace came from; it decides what its events mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// A PyTorch memory snapshot.
    TorchSnapshot,
    /// The log of RMM's logging resource.
    RmmLog,
    /// A `.room` recording of a whole process.
    Room,
}

/// One recording.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Where it came from.
    pub kind: TraceKind,
    /// One entry per device that has events or segments.
    pub devices: Vec<DeviceTrace>,
    /// The call stacks that events and blocks refer to.
    pub stacks: Stacks,
    /// How the recorded allocator was set up.
    pub settings: AllocatorSettings,
    /// Named spans of time (`record_function` scopes), in the order of the file.
    pub annotations: Vec<Annotation>,
    /// What was recorded of the process beside its devices; `None` where the source records only an allocator.
    pub process: Option<ProcessRecord>,
    /// Things in the file that were not understood and were passed over, worth telling the user.
    pub notes: Vec<String>,
}

/// What happened on one device.
#[derive(Clone, Debug, Default)]
pub struct DeviceTrace {
    /// Which device.
    pub device: DeviceIndex,
    /// What happened, in order.
    pub events: Events,
    /// The allocator's memory when the recording ended, by ascending address. Empty when the source has none.
    pub segments: Vec<Segment>,
    /// Whether the recorder says that it lost the oldest events. `None`: it does not say.
    pub overflowed: Option<bool>,
}

/// What an event did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Action {
    /// A block was handed out. Address and requested size are the block's.
    Alloc,
    /// The program gave a block back.
    FreeRequested,
    /// The block may be used again.
    FreeCompleted,
    /// Memory was taken from the driver.
    SegmentAlloc,
    /// Memory was given back to the driver.
    SegmentFree,
    /// Pages were mapped into an expandable segment.
    SegmentMap,
    /// Pages were unmapped from an expandable segment.
    SegmentUnmap,
    /// A snapshot was taken; the size is what was active then.
    Snapshot,
    /// An allocation was refused. The size is what was asked of the driver; the address column holds the free
    /// memory that the driver reported.
    OutOfMemory,
}

/// One row of [`Events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What was done.
    pub action: Action,
    /// Where; for [`Action::OutOfMemory`] the driver's free bytes (see [`Event::device_free`]).
    pub address: Address,
    /// How much.
    pub size: Bytes,
    /// On which stream.
    pub stream: StreamId,
    /// When, in microseconds since the epoch; 0 when unknown.
    pub time_us: u64,
    /// Who asked.
    pub stack: StackId,
}

impl Event {
    /// The free memory the driver reported with a refusal.
    pub fn device_free(&self) -> Option<Bytes> {
        (self.action == Action::OutOfMemory && self.address.0 != u64::MAX)
            .then_some(Bytes::new(self.address.0))
    }
}

/// The events of one device as columns of equal length.
#[derive(Clone, Debug, Default)]
pub struct Events {
    actions: Vec<Action>,
    addresses: Vec<u64>,
    sizes: Column,
    /// Positions in `stream_ids`: a program has few streams, so four bytes are plenty.
    streams: Vec<u32>,
    stream_ids: Vec<StreamId>,
    stream_positions: FastMap<StreamId, u32>,
    times: Column,
    stacks: Vec<StackId>,
    /// The private pool of each event; empty when the recorder did not write it.
    pools: Vec<PoolId>,
}

impl Events {
    /// How many events there are.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Appends an event.
    pub fn push(&mut self, event: Event) {
        let stream = self.stream_position(event.stream);
        self.actions.push(event.action);
        self.addresses.push(event.address.0);
        self.sizes.push(event.size.get());
        self.streams.push(stream);
        self.times.push(event.time_us);
        self.stacks.push(event.stack);
    }

    /// Appends an event of a recorder that writes the pool of each; either all events have one or none does.
    pub fn push_in_pool(&mut self, event: Event, pool: PoolId) {
        self.pools.resize(self.len(), PoolId::DEFAULT);
        self.push(event);
        self.pools.push(pool);
    }

    fn stream_position(&mut self, stream: StreamId) -> u32 {
        // Nearly every event is on the stream of the one before it.
        if let Some(&last) = self.streams.last()
            && self.stream_ids[last as usize] == stream
        {
            return last;
        }
        let stream_ids = &mut self.stream_ids;
        *self.stream_positions.entry(stream).or_insert_with(|| {
            stream_ids.push(stream);
            stream_ids.len() as u32 - 1
        })
    }

    /// The event at a position.
    pub fn get(&self, index: usize) -> Option<Event> {
        Some(Event {
            action: *self.actions.get(index)?,
            address: Address(*self.addresses.get(index)?),
            size: Bytes::new(self.sizes.get(index)?),
            stream: *self.stream_ids.get(*self.streams.get(index)? as usize)?,
            time_us: self.times.get(index)?,
            stack: *self.stacks.get(index)?,
        })
    }

    /// The pool of an event, if the recorder wrote pools.
    pub fn pool(&self, index: usize) -> Option<PoolId> {
        self.pools.get(index).copied()
    }

    /// All events in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Event> + ExactSizeIterator + '_ {
        (0..self.len()).map(|index| Event {
            action: self.actions[index],
            address: Address(self.addresses[index]),
            size: Bytes::new(self.sizes.at(index)),
            stream: self.stream_ids[self.streams[index] as usize],
            time_us: self.times.at(index),
            stack: self.stacks[index],
        })
    }

    /// What each event did, as one column.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// The streams that occur, in the order of their first use.
    pub fn streams(&self) -> &[StreamId] {
        &self.stream_ids
    }
}

/// One piece of driver memory at the end of a recording.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// Where it begins.
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
    /// Its parts, by ascending address, without gaps: Σ blocks = size.
    pub blocks: Vec<Block>,
    /// Who caused it to be taken.
    pub stack: StackId,
}

/// What a block of a segment is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// In the program's hands.
    Live,
    /// Given back, waiting for a stream.
    PendingFree,
    /// Cached by the allocator.
    #[default]
    Free,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    /// Where it begins.
    pub address: Address,
    /// Its size, rounding included.
    pub size: Bytes,
    /// What the program asked for; `None` where the recorder did not say. Stale for free blocks.
    pub requested: Option<Bytes>,
    /// What it is doing.
    pub state: BlockState,
    /// Who asked for it.
    pub stack: StackId,
}

/// The recorded allocator's settings, as far as the recording holds them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatorSettings {
    /// The settings string the user gave (`PYTORCH_ALLOC_CONF`).
    pub text: Option<String>,
    /// Blocks of this size and more are not split; `u64::MAX` is no such limit.
    pub max_split_size: Option<Bytes>,
    /// The share of the limit above which unused blocks are collected; 0 is off.
    pub garbage_collection_threshold: Option<f64>,
    /// Whether segments grow by mapping pages.
    pub expandable_segments: Option<bool>,
    /// Divisions of a power of two that sizes are rounded up to, for 1 MiB, 2 MiB, … 32 GiB.
    pub roundup_power2_divisions: Option<[u32; 16]>,
    /// Where makeroom's own pool wrote the recording: what it lets itself take of each device, by its number; 0 where
    /// it has no limit, or several pools have one each. `None` where PyTorch's allocator did.
    pub pool_limits: Option<Vec<Bytes>>,
}

impl AllocatorSettings {
    /// What makeroom's own pool let itself take of a device.
    pub fn pool_limit(&self, device: DeviceIndex) -> Option<Bytes> {
        let limit = self.pool_limits.as_ref()?.get(device.0 as usize)?;
        (!limit.is_zero()).then_some(*limit)
    }
}

/// The beginning or the end of a named span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// What the program called it.
    pub name: String,
    /// Beginning or end.
    pub stage: AnnotationStage,
    /// The device it belongs to, if it says.
    pub device: Option<DeviceIndex>,
    /// When, in microseconds since the epoch.
    pub time_us: u64,
}

/// Which end of a span an [`Annotation`] marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationStage {
    /// It began.
    Start,
    /// It ended.
    End,
}

impl Trace {
    /// A trace without content, to be filled by an importer.
    pub fn new(kind: TraceKind) -> Self {
        Self {
            kind,
            devices: Vec::new(),
            stacks: Stacks::default(),
            settings: AllocatorSettings::default(),
            annotations: Vec::new(),
            process: None,
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

    /// How many events all devices have together.
    pub fn event_count(&self) -> usize {
        self.devices.iter().map(|device| device.events.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_give_back_the_rows_that_were_pushed() {
        let mut events = Events::default();
        let event = |address, stream| Event {
            action: Action::Alloc,
            address: Address(address),
            size: Bytes::mib(3),
            stream: StreamId(stream),
            time_us: 11,
            stack: StackId::NONE,
        };
        events.push(event(512, 0));
        events.push(event(1024, 9));
        events.push_in_pool(event(2048, 0), PoolId(0, 2));
        assert_eq!(events.get(1), Some(event(1024, 9)));
        assert_eq!(events.iter().map(|event| event.address.0).collect::<Vec<_>>(), [512, 1024, 2048]);
        assert_eq!(events.streams(), [StreamId(0), StreamId(9)]);
        assert_eq!(events.pool(2), Some(PoolId(0, 2)));
        assert_eq!(events.get(3), None);
    }

    #[test]
    fn a_refusal_carries_the_free_memory_in_its_address_column() {
        let refusal = |address| Event {
            action: Action::OutOfMemory,
            address: Address(address),
            size: Bytes::mib(3),
            stream: StreamId(0),
            time_us: 0,
            stack: StackId::NONE,
        };
        assert_eq!(refusal(77).device_free(), Some(Bytes::new(77)));
        assert_eq!(refusal(u64::MAX).device_free(), None);
    }
}
