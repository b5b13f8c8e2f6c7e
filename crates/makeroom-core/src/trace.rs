//! A recording in memory: the GPU memory operations of one process, in order.
//!
//! Events are columns, not structs: a recording of ten million events is then some 250 MB instead of several GB,
//! and a pass over one column touches only that column. What a file did not say is `None`, never a guess.

use crate::column::Column;
use crate::{Address, Bytes, DeviceIndex, FastMap, PoolId, ProcessRecord, StackId, Stacks, StreamId};

/// The source of a trace, which determines the meaning of its events.
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

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Action {
    /// A block was allocated, with its address and requested size.
    Alloc,
    /// The program freed a block.
    FreeRequested,
    /// The block may be reused.
    FreeCompleted,
    /// A segment was allocated from the driver.
    SegmentAlloc,
    /// A segment was freed to the driver.
    SegmentFree,
    /// Pages were mapped into an expandable segment.
    SegmentMap,
    /// Pages were unmapped from an expandable segment.
    SegmentUnmap,
    /// A snapshot was taken; the size is that of active memory.
    Snapshot,
    /// An allocation failed. The size is that of the request to the driver; the address column has the free memory
    /// that the driver reported.
    OutOfMemory,
}

/// One row of [`Events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its kind.
    pub action: Action,
    /// Its address; for [`Action::OutOfMemory`], the driver's free bytes (see [`Event::device_free`]).
    pub address: Address,
    /// Its size.
    pub size: Bytes,
    /// Its stream.
    pub stream: StreamId,
    /// Time in microseconds since the epoch; 0 if unknown.
    pub time_us: u64,
    /// Its call stack.
    pub stack: StackId,
}

impl Event {
    /// An event on the default stream, without a time or a stack.
    pub fn new(action: Action, address: u64, size: u64) -> Self {
        Self {
            action,
            address: Address(address),
            size: Bytes::new(size),
            stream: StreamId::default(),
            time_us: 0,
            stack: StackId::NONE,
        }
    }

    /// The free memory that the driver reported for a failed allocation.
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
    /// The private pool of each event; empty if the recorder does not write pools.
    pools: Vec<PoolId>,
}

impl Events {
    /// Number of events.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether there are no events.
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

    /// Appends an event with its pool. Either all events have one or none does.
    pub fn push_in_pool(&mut self, event: Event, pool: PoolId) {
        self.pools.resize(self.len(), PoolId::DEFAULT);
        self.push(event);
        self.pools.push(pool);
    }

    fn stream_position(&mut self, stream: StreamId) -> u32 {
        // Most events are on the same stream as the previous one.
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

    /// The event at an index.
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

    /// The pool of an event, if the recorder writes pools.
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

    /// All events in order, with their pools, for the last pass over them: their memory is freed on the way.
    ///
    /// Columns are reversed once, so that each event is the last of its column when its turn comes.
    pub fn into_events(mut self) -> impl Iterator<Item = (Event, Option<PoolId>)> {
        self.actions.reverse();
        self.addresses.reverse();
        self.sizes.low_mut().reverse();
        self.streams.reverse();
        self.times.low_mut().reverse();
        self.stacks.reverse();
        self.pools.reverse();
        (0..self.len()).map_while(move |index| self.pop(index))
    }

    /// Removes the last entry of each column, which is the event at this index before the columns were reversed.
    fn pop(&mut self, index: usize) -> Option<(Event, Option<PoolId>)> {
        let event = Event {
            action: self.actions.pop()?,
            address: Address(self.addresses.pop()?),
            size: Bytes::new(self.sizes.low_mut().pop().map(|low| self.sizes.with_low(index, low))?),
            stream: *self.stream_ids.get(self.streams.pop()? as usize)?,
            time_us: self.times.low_mut().pop().map(|low| self.times.with_low(index, low))?,
            stack: self.stacks.pop()?,
        };
        let pool = self.pools.pop();
        if (index + 1).is_multiple_of(EVENTS_FREED) {
            self.actions.shrink_to_fit();
            self.addresses.shrink_to_fit();
            self.sizes.low_mut().shrink_to_fit();
            self.streams.shrink_to_fit();
            self.times.low_mut().shrink_to_fit();
            self.stacks.shrink_to_fit();
            self.pools.shrink_to_fit();
        }
        Some((event, pool))
    }

    /// The column of actions.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// All streams, in order of first use.
    pub fn streams(&self) -> &[StreamId] {
        &self.stream_ids
    }
}

/// After this many events of the last pass, the memory of their columns is freed.
const EVENTS_FREED: usize = 1 << 18;

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
    fn the_last_pass_gives_every_event_and_its_pool() {
        let mut events = Events::default();
        let event = |number: u64| Event {
            action: if number.is_multiple_of(2) { Action::Alloc } else { Action::FreeCompleted },
            address: Address(number << 40),
            size: Bytes::new(number << 20),
            stream: StreamId(number / 1000),
            time_us: number << 25,
            stack: StackId::NONE,
        };
        let count = EVENTS_FREED as u64 + 7;
        for number in 0..count {
            events.push_in_pool(event(number), PoolId(0, number));
        }
        let all: Vec<(Event, Option<PoolId>)> = events.into_events().collect();
        let expected = (0..count).map(|number| (event(number), Some(PoolId(0, number))));
        assert!(all.into_iter().eq(expected));
        let mut without_pools = Events::default();
        without_pools.push(event(3));
        assert!(without_pools.into_events().eq([(event(3), None)]));
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
