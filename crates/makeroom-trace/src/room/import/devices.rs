//! Converts rows, in order of time, to the events of each device.

use std::collections::{HashSet, VecDeque};
use std::iter::Peekable;
use std::slice;

use makeroom_core::{
    Action, Address, Bytes, DeviceIndex, DeviceTrace, Event, FastHasher, FastMap, PoolUse, ProcessRecord,
    SortCompact as _, StreamId, Trace,
};
use makeroom_ordered::{OrderedMap, OrderedSet};

use super::Clock;
use super::blocks::{Blocks, Taken};
use super::collect::{Collected, MemoryEventRow, ON_HOST, Role};
use super::definitions::Asker;
use super::pending::{Pending, Queues};
use super::process::EndedContext;
use super::refusals::Attempts;
use super::rows::{RowSet, Rows, Seen};
use super::segments::{self, is_of_pool, is_tensor};
use crate::room::EventKind;

/// Adds the devices to a trace.
pub(super) fn assemble(
    trace: &mut Trace,
    clock: Clock,
    collected: &mut Collected,
    ended: &[EndedContext],
    process: &mut ProcessRecord,
) {
    let rows = &mut collected.rows;
    let attempts = Attempts::find(rows);
    let completed = frees_completed_later(rows);
    process.refused_then_served = attempts.served;
    process.refused_as_reported = attempts.reported;
    process.sees_tensors = rows.has(Seen::Tensors);
    let found = segments::find(rows);
    let mut devices: FastMap<DeviceIndex, Device<'_>> = FastMap::default();
    for &device in &collected.devices {
        devices.insert(device, Device::new(device, clock, process));
    }
    let mut queues = Queues::new(process.contexts.len() <= 1);
    let mut contexts = EndingContexts::new(ended);
    let samples = std::mem::take(&mut collected.device_samples);
    let mut samples = samples.iter().peekable();
    let mut events_before: FastMap<DeviceIndex, VecDeque<usize>> = FastMap::default();
    for index in 0..rows.len() {
        rows.forget_before(index);
        let row = &rows.get(index);
        while let Some(sample) = samples.next_if(|sample| sample.since_ns < row.since_ns) {
            contexts.end_until(sample.since_ns, &mut devices);
            let sample = sample.measured;
            events_before.entry(sample.device).or_default().push_back(event_count(&devices, sample.device));
        }
        contexts.end_until(row.since_ns, &mut devices);
        if matches!(row.role, Role::Wait | Role::EndStream) {
            for (since_ns, device, address) in queues.wait(row) {
                if let Some(device) = devices.get_mut(&device) {
                    device.pending.complete(address, since_ns);
                }
            }
            continue;
        }
        let Some(device) = devices.get_mut(&row.device) else { continue };
        contexts.see(row);
        if !row.is_refused {
            let known = Known {
                is_segment: found.segments.contains(index),
                is_handed_on: found.handed_on.contains(index),
                is_completed_later: completed.contains(index),
            };
            device.apply(row, known, &mut queues);
        } else if attempts.counts(index) {
            device.refuse(row, attempts.is_unasked(index, row));
        }
    }
    for sample in samples {
        contexts.end_until(sample.since_ns, &mut devices);
        let sample = sample.measured;
        events_before.entry(sample.device).or_default().push_back(event_count(&devices, sample.device));
    }
    contexts.end_until(i64::MAX, &mut devices);
    let mut freed_with_contexts = Bytes::ZERO;
    let mut stream_frees = Vec::new();
    let (mut refused_to_others, mut refused_unasked) = (Vec::new(), Vec::new());
    let mut pools = Vec::new();
    for device in devices.into_values() {
        let index = device.trace.device;
        refused_to_others.extend(device.refused_to_others.iter().map(|&position| (index, position)));
        refused_unasked.extend(device.refused_unasked.iter().map(|&position| (index, position)));
        freed_with_contexts += device.freed_with_contexts;
        pools.extend(device.pool);
        stream_frees.extend(device.pending.finish(device.trace.device));
        trace.devices.push(device.trace);
    }
    trace.devices.sort_compact_by_key(|device| device.device);
    stream_frees.sort_compact_by_key(|frees| frees.device);
    pools.sort_compact_by_key(|pool: &PoolUse| pool.device);
    process.pools = pools;
    refused_to_others.sort_unstable();
    refused_unasked.sort_unstable();
    process.refused_to_others = refused_to_others;
    process.refused_unasked = refused_unasked;
    process.stream_frees = stream_frees;
    // Both are in order of time within each device.
    for sample in &mut process.device_samples {
        sample.events_before = events_before.get_mut(&sample.device).and_then(VecDeque::pop_front);
    }
    process.freed_with_contexts = freed_with_contexts;
}

/// How many events a device has so far.
fn event_count(devices: &FastMap<DeviceIndex, Device<'_>>, device: DeviceIndex) -> usize {
    devices.get(&device).map_or(0, |device| device.trace.events.len())
}

/// The stream-ordered frees whose completion is recorded.
fn frees_completed_later(rows: &Rows) -> RowSet {
    let mut found = RowSet::default();
    if !rows.has(Seen::Completions) {
        return found;
    }
    let mut completed: HashSet<(DeviceIndex, u64), FastHasher> = HashSet::default();
    for (index, row) in (0..rows.len()).rev().map(|index| (index, rows.get(index))) {
        let place = (row.device, row.address);
        match (row.role, row.kind) {
            (Role::Complete, _) => {
                completed.insert(place);
            }
            (Role::Give, EventKind::StreamFree) if completed.remove(&place) => {
                found.insert(index);
            }
            // The memory was reused: a later completion belongs to a later free.
            (Role::Take, _) => {
                completed.remove(&place);
            }
            _ => {}
        }
    }
    found
}

/// The addresses of memory allocated in contexts that are destroyed during the recording.
///
/// A recording can have as many contexts as events, so the end of one context must not examine the memory of all
/// others.
struct EndingContexts<'import> {
    taken: FastMap<u64, OrderedSet<(DeviceIndex, u64)>>,
    /// The contexts that have not ended yet, in order of time.
    left: Peekable<slice::Iter<'import, EndedContext>>,
}

impl<'import> EndingContexts<'import> {
    fn new(ended: &'import [EndedContext]) -> Self {
        let handles = ended.iter().map(|context| context.handle).filter(|&handle| handle != 0);
        Self {
            taken: handles.map(|handle| (handle, OrderedSet::new())).collect(),
            left: ended.iter().peekable(),
        }
    }

    /// Ends the contexts that are destroyed up to this time.
    fn end_until(&mut self, since_ns: i64, devices: &mut FastMap<DeviceIndex, Device<'_>>) {
        while let Some(context) = self.left.next_if(|context| context.since_ns <= since_ns) {
            self.end(context, devices);
        }
    }

    fn see(&mut self, row: &MemoryEventRow) {
        if row.role == Role::Take
            && !row.is_refused
            && let Some(taken) = self.taken.get_mut(&row.context)
        {
            taken.insert((row.device, row.address));
        }
    }

    fn end(&mut self, context: &EndedContext, devices: &mut FastMap<DeviceIndex, Device<'_>>) {
        let Some(taken) = self.taken.get_mut(&context.handle).map(std::mem::take) else { return };
        let taken: Vec<(DeviceIndex, u64)> = taken.into_iter().collect();
        for taken in taken.chunk_by(|(first, _), (second, _)| first == second) {
            let addresses: Vec<u64> = taken.iter().map(|&(_, address)| address).collect();
            if let Some(device) = taken.first().and_then(|(device, _)| devices.get_mut(device)) {
                device.end_context(context, &addresses);
            }
        }
    }
}

/// What the surrounding rows show about a row.
#[derive(Clone, Copy)]
struct Known {
    /// It allocates a segment: memory that a framework divides into tensors.
    is_segment: bool,
    /// It allocates a block that makeroom's pool passes on to a framework.
    is_handed_on: bool,
    /// It is a stream-ordered free whose completion is recorded.
    is_completed_later: bool,
}

/// The state of a device during the import.
struct Device<'import> {
    trace: DeviceTrace,
    clock: Clock,
    process: &'import ProcessRecord,
    /// Live allocations, by address.
    blocks: Blocks,
    /// Tensors that ended with their segment; a later free of them has no effect.
    ended: HashSet<u64, FastHasher>,
    /// Segments that a framework allocated from the driver, by address.
    segments: FastMap<u64, Taken>,
    /// Stream-ordered frees that are not known to be complete.
    pending: Pending,
    freed_with_contexts: Bytes,
    /// Indices of failed requests that were not made by the framework.
    refused_to_others: Vec<usize>,
    /// Indices of requests that the framework failed without calling the driver.
    refused_unasked: Vec<usize>,
    /// Blocks that makeroom's pool passed on to a framework, by address. They count as the framework's blocks.
    handed_on: HashSet<u64, FastHasher>,
    /// Statistics of makeroom's pool, if it served this device.
    pool: Option<PoolUse>,
    /// Host memory that the pool uses instead of device memory.
    spilled: Bytes,
    /// Mappings by address.
    mapped: OrderedMap<u64, Mapping>,
    /// Handles and addresses of memory that is not on this device, or that belongs to another owner.
    elsewhere: HashSet<u64, FastHasher>,
}

/// Physical memory mapped at an address.
#[derive(Clone, Copy)]
struct Mapping {
    size: u64,
    counts_as: MappedAs,
}

/// How mapped memory counts in the trace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MappedAs {
    /// As part of a framework's segment.
    Segment,
    /// As an allocation.
    Block,
    /// Not at all: it is not on this device, or belongs to another owner.
    Elsewhere,
    /// Not at all: makeroom's pool spilled it to host memory.
    Spilled,
}

impl<'import> Device<'import> {
    fn new(device: DeviceIndex, clock: Clock, process: &'import ProcessRecord) -> Self {
        Self {
            trace: DeviceTrace { device, overflowed: Some(false), ..DeviceTrace::default() },
            clock,
            process,
            blocks: Blocks::default(),
            ended: HashSet::default(),
            segments: FastMap::default(),
            pending: Pending::default(),
            freed_with_contexts: Bytes::ZERO,
            refused_to_others: Vec::new(),
            refused_unasked: Vec::new(),
            handed_on: HashSet::default(),
            pool: None,
            spilled: Bytes::ZERO,
            mapped: OrderedMap::new(),
            elsewhere: HashSet::default(),
        }
    }

    fn apply(&mut self, row: &MemoryEventRow, known: Known, queues: &mut Queues) {
        // makeroom's own pool, if it serves the device, replaces the driver's pools.
        if self.pool.is_none() && !is_tensor(row) {
            let there = self.blocks.get(row.address).or(self.segments.get(&row.address));
            self.pending.see(row, there.map(|taken| taken.size), queues);
        }
        match row.role {
            Role::Take if known.is_segment => {
                self.segments.insert(row.address, Taken { size: row.size, context: row.context });
                self.push(Action::SegmentAlloc, row, row.address, row.size);
            }
            Role::Take if known.is_handed_on => {
                self.handed_on.insert(row.address);
            }
            Role::Take => self.take(row),
            Role::Give => self.give(row, known.is_completed_later),
            Role::Complete => {
                if let Some(taken) = self.blocks.remove(row.address) {
                    self.push(Action::FreeCompleted, row, row.address, taken.size);
                }
            }
            Role::Map => self.map(row, known.is_segment),
            Role::Unmap => self.unmap(row),
            Role::Create => {
                // Handles are reused; the latest memory with this handle counts.
                if row.extra == ON_HOST {
                    self.elsewhere.insert(row.address);
                } else {
                    self.elsewhere.remove(&row.address);
                }
            }
            Role::Foreign => {
                self.elsewhere.insert(row.address);
            }
            Role::Wait | Role::EndStream => {}
        }
    }

    /// Whether an address is in host memory that the pool spilled to.
    fn is_spilled(&self, address: u64) -> bool {
        let below = self.mapped.range(..=address).next_back();
        below.is_some_and(|(&start, mapping)| {
            mapping.counts_as == MappedAs::Spilled && address - start < mapping.size
        })
    }

    fn take(&mut self, row: &MemoryEventRow) {
        if self.pool.is_some() && self.is_spilled(row.address) {
            self.elsewhere.insert(row.address);
            if let Some(pool) = &mut self.pool {
                pool.spilled_blocks += 1;
            }
            return;
        }
        self.elsewhere.remove(&row.address);
        if let Some(pool) = &mut self.pool
            && !is_tensor(row)
            && pool.ranges.contains(row.address)
        {
            pool.other_allocations.push(self.trace.events.len());
        }
        self.ended.remove(&row.address);
        self.blocks.insert(row.address, Taken { size: row.size, context: row.context });
        self.push(Action::Alloc, row, row.address, row.size);
    }

    fn give(&mut self, row: &MemoryEventRow, is_completed_later: bool) {
        if !is_tensor(row) && self.handed_on.remove(&row.address) || self.elsewhere.remove(&row.address) {
            return;
        }
        // A segment's first tensor has the segment's address: only a free in the driver ends the segment.
        if !is_tensor(row) {
            let is_older = row.asker == Asker::Torch && self.blocks.get(row.address).is_none();
            let known = self.segments.remove(&row.address).map(|taken| taken.size);
            if let Some(size) = known.or(is_older.then_some(row.size)) {
                self.end_inside(row.since_ns, row.address, size);
                self.push(Action::SegmentFree, row, row.address, size);
                return;
            }
        }
        if is_tensor(row) && self.ended.remove(&row.address) {
            return;
        }
        let taken = if is_completed_later {
            self.blocks.get(row.address).copied()
        } else {
            self.blocks.remove(row.address)
        };
        let size = taken.map_or(row.size, |taken| taken.size);
        self.push(Action::FreeRequested, row, row.address, size);
        if !is_completed_later {
            self.push(Action::FreeCompleted, row, row.address, size);
        }
    }

    fn map(&mut self, row: &MemoryEventRow, is_segment: bool) {
        let is_elsewhere = self.elsewhere.contains(&row.extra);
        if is_of_pool(row.extra) {
            let device = self.trace.device;
            let pool = self.pool.get_or_insert_with(|| PoolUse { device, ..PoolUse::default() });
            pool.ranges.insert(row.address, row.size);
            if is_elsewhere {
                self.spilled += Bytes::new(row.size);
                pool.spilled_peak = pool.spilled_peak.max(self.spilled);
            }
        }
        let counts_as = if is_elsewhere && is_of_pool(row.extra) {
            MappedAs::Spilled
        } else if is_elsewhere {
            MappedAs::Elsewhere
        } else if is_segment {
            MappedAs::Segment
        } else {
            MappedAs::Block
        };
        self.mapped.insert(row.address, Mapping { size: row.size, counts_as });
        match counts_as {
            MappedAs::Segment => self.push(Action::SegmentMap, row, row.address, row.size),
            MappedAs::Block => self.push(Action::Alloc, row, row.address, row.size),
            MappedAs::Elsewhere | MappedAs::Spilled => {}
        }
    }

    /// Unmaps a range, which may contain several mappings; each is undone as it was counted.
    fn unmap(&mut self, row: &MemoryEventRow) {
        let end = row.address.saturating_add(row.size);
        let mut mappings: Vec<(u64, Mapping)> =
            self.mapped.range(row.address..end).map(|(&address, &mapping)| (address, mapping)).collect();
        if mappings.is_empty() {
            let counts_as = if row.asker == Asker::Torch { MappedAs::Segment } else { MappedAs::Block };
            mappings.push((row.address, Mapping { size: row.size, counts_as }));
        }
        for (address, Mapping { size, counts_as }) in mappings {
            self.mapped.remove(&address);
            match counts_as {
                MappedAs::Segment => {
                    self.end_inside(row.since_ns, address, size);
                    self.push(Action::SegmentUnmap, row, address, size);
                }
                MappedAs::Block => {
                    self.push(Action::FreeRequested, row, address, size);
                    self.push(Action::FreeCompleted, row, address, size);
                }
                MappedAs::Elsewhere => {}
                MappedAs::Spilled => self.spilled = self.spilled - Bytes::new(size),
            }
        }
    }

    /// Frees everything that was allocated in a destroyed context. `addresses` are the candidates, in order.
    fn end_context(&mut self, ended: &EndedContext, addresses: &[u64]) {
        let of_context = |taken: &dyn Fn(u64) -> Option<Taken>| -> Vec<(u64, u64)> {
            let found = addresses.iter().filter_map(|&address| Some((address, taken(address)?)));
            let inside = found.filter(|(_, taken)| taken.context == ended.handle);
            inside.map(|(address, taken)| (address, taken.size)).collect()
        };
        let blocks = of_context(&|address| self.blocks.get(address).copied());
        let segments = of_context(&|address| self.segments.get(&address).copied());
        for (address, size) in blocks {
            self.blocks.remove(address);
            self.freed_with_contexts += Bytes::new(size);
            self.push_at(ended.since_ns, Action::FreeRequested, address, size);
            self.push_at(ended.since_ns, Action::FreeCompleted, address, size);
        }
        for (address, size) in segments {
            self.segments.remove(&address);
            self.end_inside(ended.since_ns, address, size);
            self.push_at(ended.since_ns, Action::SegmentFree, address, size);
        }
    }

    /// Ends the blocks in a segment that returns to the driver: memory that is not there cannot be live.
    /// makeroom's pool moves pages below live blocks, so an unmapping in its range ends nothing.
    fn end_inside(&mut self, since_ns: i64, address: u64, size: u64) {
        if self.pool.as_ref().is_some_and(|pool| pool.ranges.contains(address)) {
            return;
        }
        for address in self.blocks.inside(address, size) {
            let Some(taken) = self.blocks.remove(address) else { continue };
            self.ended.insert(address);
            self.push_at(since_ns, Action::FreeRequested, address, taken.size);
            self.push_at(since_ns, Action::FreeCompleted, address, taken.size);
        }
    }

    fn push_at(&mut self, since_ns: i64, action: Action, address: u64, size: u64) {
        let time_us = self.clock.date_us(since_ns);
        self.trace.events.push(Event { time_us, ..Event::new(action, address, size) });
    }

    /// Records a request that finally failed.
    fn refuse(&mut self, row: &MemoryEventRow, is_unasked: bool) {
        self.pending.refused();
        let time_us = self.clock.date_us(row.since_ns);
        let sample = self.process.device_sample_near(row.device, time_us);
        let free = sample.map_or(u64::MAX, |sample| sample.free.get());
        // The framework's own failures are those of tensors, and those of its allocator's driver calls.
        if self.process.sees_tensors && !is_tensor(row) && row.asker != Asker::Torch {
            self.refused_to_others.push(self.trace.events.len());
        }
        if is_unasked {
            self.refused_unasked.push(self.trace.events.len());
        }
        self.push(Action::OutOfMemory, row, free, row.size);
    }

    fn push(&mut self, action: Action, row: &MemoryEventRow, address: u64, size: u64) {
        self.trace.events.push(Event {
            action,
            address: Address(address),
            size: Bytes::new(size),
            stream: StreamId(row.stream),
            time_us: self.clock.date_us(row.since_ns),
            stack: row.stack,
        });
        let index = self.trace.events.len() - 1;
        self.trace.events.set_thread(index, row.thread);
    }
}
