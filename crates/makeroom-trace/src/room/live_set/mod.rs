//! Log compaction: the events of a recording that still matter, so that a bounded file can start with them.
//!
//! A recording that may not grow forever drops its oldest events. It then starts with the events whose effect is still
//! there: the allocation of every live block, its context, its mapping. They keep their times, stacks and threads, so
//! a reader needs no special case: live memory, by line of code, is that of the full recording at every later moment.
//!
//! ```text
//! mod.rs       which event creates what, and which ends it
//! register.rs  what is there by address: the event with the latest time wins
//! physical.rs  physical memory and its mappings, which end when the last of both is gone
//! ```
//!
//! **Order.** Events of different threads arrive in any order within a fraction of a second, a free even before its
//! allocation. They therefore count only once they are older than that ([`LiveSet::settle`]), in the order of their
//! times; until then they are kept as they are.
//!
//! **What is lost** with the dropped events: peaks, failed requests and steps before the cut, and stream-ordered frees
//! that were pending then. [`LiveSet::left_out`] counts the events.

mod physical;
mod register;

use std::collections::BTreeMap;

use makeroom_core::DeviceIndex;
use makeroom_ordered::OrderedMap;

use self::physical::PhysicalMemory;
use self::register::{Class, Register};
use super::{Encoder, Event, EventKind, Sample, StackNumber, ThreadNumber, seal};

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;
/// Samples that are kept: those before the first event was dropped, which show the size of contexts.
const MOST_SAMPLES: usize = 256;
/// Length of a batch, as in the rest of a file.
const BATCH: usize = 64 << 10;
/// Values that are kept, of attributes and limits; a program sets a handful.
const MOST_VALUES: usize = 4096;

/// An event and its thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    thread: ThreadNumber,
    event: Event,
}

/// The events of a recording that still matter.
#[derive(Clone, Debug, Default)]
pub struct LiveSet {
    blocks: Register,
    physical: PhysicalMemory,
    /// Each device's references to its primary context, oldest first.
    primaries: OrderedMap<DeviceIndex, Vec<Seen>>,
    /// The latest value of each setting: kind, device, pool and which one.
    values: BTreeMap<(u8, u32, u64, u64), Seen>,
    samples: Vec<(ThreadNumber, Sample)>,
    /// Events that have not been applied.
    recent: Vec<Seen>,
    settled: u64,
    failures: u64,
    has_dropped: bool,
}

/// Events that a live set does not contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// All of them.
    pub events: u64,
    /// Failed requests for memory among them.
    pub failures: u64,
}

impl LiveSet {
    /// Adds an event.
    pub fn see(&mut self, thread: ThreadNumber, event: &Event) {
        self.recent.push(Seen { thread, event: *event });
    }

    /// Applies the events before a time. Events that arrive later with an earlier time are applied late.
    pub fn settle(&mut self, before_ns: u64) {
        let mut recent = std::mem::take(&mut self.recent);
        // Stable, and fast for a few sorted runs, one for each thread.
        recent.sort_by_key(|seen| seen.event.time_ns);
        let settled = recent.partition_point(|seen| seen.event.time_ns < before_ns);
        for seen in recent.drain(..settled) {
            self.apply(seen);
        }
        self.recent = recent;
    }

    fn apply(&mut self, seen: Seen) {
        self.settled += 1;
        let event = &seen.event;
        let address = event.address.0;
        if event.result != 0 {
            self.failures += u64::from(event.result == OUT_OF_MEMORY);
            self.has_dropped = true;
            return;
        }
        match event.kind {
            EventKind::DeviceAlloc
            | EventKind::PitchedAlloc
            | EventKind::ManagedAlloc
            | EventKind::StreamAlloc
            | EventKind::ExternalMap => self.blocks.begin(Class::Block, address, seen),
            EventKind::DeviceFree | EventKind::StreamFree => self.end(Class::Block, address, event),
            EventKind::ArrayAlloc | EventKind::MipmappedAlloc => {
                self.blocks.begin(Class::Array, address, seen);
            }
            EventKind::ArrayFree | EventKind::MipmappedFree => self.end(Class::Array, address, event),
            EventKind::GraphAlloc => self.blocks.begin(Class::Graph, address, seen),
            EventKind::GraphFree => self.end(Class::Graph, address, event),
            EventKind::TensorAlloc => self.blocks.begin(Class::Tensor, address, seen),
            EventKind::TensorFree => self.end(Class::Tensor, address, event),
            EventKind::PinnedAlloc | EventKind::HostRegister => {
                self.blocks.begin(Class::Pinned, address, seen);
            }
            EventKind::PinnedFree | EventKind::HostUnregister => self.end(Class::Pinned, address, event),
            EventKind::AddressReserve => self.blocks.begin(Class::Addresses, address, seen),
            EventKind::AddressRelease => self.end(Class::Addresses, address, event),
            EventKind::IpcOpen => self.blocks.begin(Class::Foreign, address, seen),
            EventKind::IpcClose => self.end(Class::Foreign, address, event),
            EventKind::ExternalImport => self.blocks.begin(Class::Import, address, seen),
            EventKind::ExternalDestroy => self.end(Class::Import, address, event),
            EventKind::ModuleLoad | EventKind::LibraryLoad => self.blocks.begin(Class::Code, address, seen),
            EventKind::ModuleUnload | EventKind::LibraryUnload => self.end(Class::Code, address, event),
            EventKind::PoolCreate => self.blocks.begin(Class::Pool, event.pool.0, seen),
            EventKind::PoolDestroy => self.end(Class::Pool, event.pool.0, event),
            EventKind::ContextCreate => self.blocks.begin(Class::Context, event.context.0, seen),
            EventKind::ContextDestroy => {
                self.end(Class::Context, event.context.0, event);
                self.blocks.end_context(event.context);
            }
            EventKind::PrimaryRetain => self.primaries.entry(event.device).or_default().push(seen),
            EventKind::PrimaryRelease => self.release_primary(event, 1),
            EventKind::PrimaryReset => self.release_primary(event, usize::MAX),
            EventKind::PhysicalCreate | EventKind::MulticastCreate => self.physical.create(seen),
            EventKind::PhysicalRetain => self.physical.retain(seen),
            EventKind::PhysicalRelease => self.has_dropped |= self.physical.release(seen),
            EventKind::Map => self.physical.map(seen),
            EventKind::Unmap => self.has_dropped |= self.physical.unmap(event),
            EventKind::PoolSetAttribute
            | EventKind::LimitSet
            | EventKind::GraphMemory
            | EventKind::PoolMemory => self.set_value(seen),
            _ => self.has_dropped = true,
        }
    }

    /// Updates the set with a sample.
    pub fn sample(&mut self, thread: ThreadNumber, sample: &Sample) {
        if !self.has_dropped && self.samples.len() < MOST_SAMPLES {
            self.samples.push((thread, *sample));
        }
    }

    /// The events that are left out.
    pub fn left_out(&self) -> LeftOut {
        let kept = self.settled_events().count() as u64;
        LeftOut { events: self.settled.saturating_sub(kept), failures: self.failures }
    }

    /// The stacks of the events, with duplicates.
    pub fn stacks(&self) -> impl Iterator<Item = StackNumber> {
        self.events().map(|seen| seen.event.stack)
    }

    /// Appends the events as whole frames.
    pub fn write(&self, output: &mut Vec<u8>) {
        let mut events: Vec<&Seen> = self.events().collect();
        events.sort_by_key(|seen| (seen.thread, seen.event.time_ns));
        for of_thread in events.chunk_by(|one, next| one.thread == next.thread) {
            let Some(first) = of_thread.first() else { continue };
            let mut encoder = Encoder::new(first.thread, Vec::new());
            for seen in of_thread {
                encoder.event(&seen.event);
                if encoder.len() >= BATCH {
                    seal(encoder.bytes(), output);
                    encoder.clear();
                }
            }
            if !encoder.is_empty() {
                seal(encoder.bytes(), output);
            }
        }
        for of_thread in self.samples.chunk_by(|(one, _), (next, _)| one == next) {
            let Some((thread, _)) = of_thread.first() else { continue };
            let mut encoder = Encoder::new(*thread, Vec::new());
            for (_, sample) in of_thread {
                encoder.sample(sample);
            }
            seal(encoder.bytes(), output);
        }
    }

    fn events(&self) -> impl Iterator<Item = &Seen> {
        self.settled_events().chain(&self.recent)
    }

    fn settled_events(&self) -> impl Iterator<Item = &Seen> {
        let primaries = self.primaries.values().flatten();
        self.blocks.events().chain(self.physical.events()).chain(primaries).chain(self.values.values())
    }

    fn end(&mut self, class: Class, key: u64, event: &Event) {
        self.has_dropped = true;
        self.blocks.end(class, key, event.time_ns);
        if class == Class::Pool {
            self.values.retain(|&(_, _, pool, _), _| pool != key || pool == 0);
        }
    }

    fn set_value(&mut self, seen: Seen) {
        let event = &seen.event;
        let which = match event.kind {
            EventKind::PoolSetAttribute | EventKind::LimitSet => event.extra,
            _ => 0,
        };
        let key = (event.kind.number(), event.device.0, event.pool.0, which);
        let is_newer = self.values.get(&key).is_none_or(|old| old.event.time_ns <= event.time_ns);
        self.has_dropped |= self.values.contains_key(&key);
        if is_newer && (self.values.len() < MOST_VALUES || self.values.contains_key(&key)) {
            self.values.insert(key, seen);
        }
    }

    /// Releases references to a primary context. With the last one, the context and its memory are gone.
    fn release_primary(&mut self, event: &Event, by: usize) {
        self.has_dropped = true;
        let Some(holds) = self.primaries.get_mut(&event.device) else { return };
        let context = holds.first().map(|seen| seen.event.context);
        holds.truncate(holds.len().saturating_sub(by));
        if holds.is_empty() {
            self.primaries.remove(&event.device);
            if let Some(context) = context {
                self.blocks.end_context(context);
            }
        }
    }
}
