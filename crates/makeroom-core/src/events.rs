//! The events of a recording, as columns.
//!
//! Columns, not structs: a recording of ten million events is then some 250 MB instead of several GB, and a pass over
//! one column touches only that column. Columns that most recordings do not have are as short as possible.

use std::ops::Range;

use crate::column::{Column, View};
use crate::{Address, Bytes, FastMap, NameId, PoolId, StackId, StreamId};

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
    /// The thread of each event, up to the last one that is not the first thread's.
    threads: Vec<u16>,
    /// The program's own label of each event, up to the last one that has one.
    labels: Vec<NameId>,
    /// The compiled frame of each event, up to the last one that has one.
    compile_contexts: Vec<NameId>,
}

impl Events {
    /// Number of events.
    #[inline]
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Appends an event.
    #[inline]
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
    #[inline]
    pub fn push_in_pool(&mut self, event: Event, pool: PoolId) {
        self.pools.resize(self.len(), PoolId::DEFAULT);
        self.push(event);
        self.pools.push(pool);
    }

    /// Sets the thread of an event, as an index into [`ProcessRecord::threads`](crate::ProcessRecord::threads).
    #[inline]
    pub fn set_thread(&mut self, index: usize, thread: u32) {
        // Few programs have more threads that use a GPU; the rest counts as one.
        let thread = u16::try_from(thread).unwrap_or(u16::MAX);
        if thread > 0 && index < self.len() {
            if self.threads.len() <= index {
                self.threads.resize(index + 1, 0);
            }
            self.threads[index] = thread;
        }
    }

    /// The thread of an event; 0 if it is not recorded.
    pub fn thread(&self, index: usize) -> usize {
        self.threads.get(index).map_or(0, |&thread| usize::from(thread))
    }

    /// Sets the program's own label of an event (PyTorch's `user_metadata`).
    pub fn set_label(&mut self, index: usize, label: NameId) {
        set(&mut self.labels, index, label, self.actions.len());
    }

    /// The program's own label of an event.
    pub fn label(&self, index: usize) -> Option<NameId> {
        self.labels.get(index).copied().filter(|&label| label != NameId::default())
    }

    /// Sets the compiled frame of an event (PyTorch's `compile_context`).
    pub fn set_compile_context(&mut self, index: usize, context: NameId) {
        set(&mut self.compile_contexts, index, context, self.actions.len());
    }

    /// The compiled frame of an event.
    pub fn compile_context(&self, index: usize) -> Option<NameId> {
        self.compile_contexts.get(index).copied().filter(|&context| context != NameId::default())
    }

    /// Appends an event of another table with its pool, thread and labels.
    pub fn push_from(&mut self, other: &Self, index: usize) {
        let Some(event) = other.get(index) else { return };
        match other.pool(index) {
            Some(pool) => self.push_in_pool(event, pool),
            None => self.push(event),
        }
        let own = self.len() - 1;
        self.set_thread(own, other.thread(index) as u32);
        if let Some(label) = other.label(index) {
            self.set_label(own, label);
        }
        if let Some(context) = other.compile_context(index) {
            self.set_compile_context(own, context);
        }
    }

    #[inline]
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

    /// The address of an event, or 0 if the event does not exist.
    #[inline]
    pub fn address(&self, index: usize) -> u64 {
        self.addresses.get(index).copied().unwrap_or(0)
    }

    /// The kind of an event.
    #[inline]
    pub fn action(&self, index: usize) -> Option<Action> {
        self.actions.get(index).copied()
    }

    /// The event at an index.
    #[inline]
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
    #[inline]
    pub fn pool(&self, index: usize) -> Option<PoolId> {
        self.pools.get(index).copied()
    }

    /// All events in order.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Event> + ExactSizeIterator + '_ {
        Iter { events: self, sizes: self.sizes.view(), times: self.times.view(), left: 0..self.len() }
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
        self.threads = Vec::new();
        self.labels = Vec::new();
        self.compile_contexts = Vec::new();
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

/// The events of a device, in order.
///
/// Reading an event cannot panic, so that the compiler leaves out the columns that a pass does not use.
#[derive(Clone, Debug)]
struct Iter<'events> {
    events: &'events Events,
    sizes: View<'events>,
    times: View<'events>,
    left: Range<usize>,
}

impl Iter<'_> {
    #[inline]
    fn at(&self, index: usize) -> Event {
        let events = self.events;
        let stream = events.streams.get(index).and_then(|&stream| events.stream_ids.get(stream as usize));
        Event {
            action: events.actions.get(index).copied().unwrap_or(Action::Snapshot),
            address: Address(events.address(index)),
            size: Bytes::new(self.sizes.at(index)),
            stream: stream.copied().unwrap_or_default(),
            time_us: self.times.at(index),
            stack: events.stacks.get(index).copied().unwrap_or(StackId::NONE),
        }
    }
}

impl Iterator for Iter<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        self.left.next().map(|index| self.at(index))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Event> {
        self.left.next_back().map(|index| self.at(index))
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Sets a row of a column that is as long as needed.
fn set(column: &mut Vec<NameId>, index: usize, name: NameId, length: usize) {
    if index < length {
        column.resize(column.len().max(index + 1), NameId::default());
        column[index] = name;
    }
}

/// After this many events of the last pass, the memory of their columns is freed.
const EVENTS_FREED: usize = if cfg!(miri) { 1 << 6 } else { 1 << 18 };

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
    fn threads_and_labels_are_columns_that_may_be_missing() {
        let mut stacks = crate::Stacks::default();
        let label = stacks.name("decode");
        let mut events = Events::default();
        for address in [512, 1024, 2048] {
            events.push(Event::new(Action::Alloc, address, 1));
        }
        events.set_thread(1, 4);
        events.set_label(0, label);
        events.set_compile_context(2, label);
        events.set_label(9, label);
        let mut copy = Events::default();
        (0..3).for_each(|index| copy.push_from(&events, index));
        for events in [events, copy] {
            assert_eq!([0, 1, 2, 9].map(|index| events.thread(index)), [0, 4, 0, 0]);
            assert_eq!([0, 1, 9].map(|index| events.label(index)), [Some(label), None, None]);
            assert_eq!([0, 2].map(|index| events.compile_context(index)), [None, Some(label)]);
        }
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
