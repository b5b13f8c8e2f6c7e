//! Memory that the process holds right now, for the status line of `run`. Tracked only if `run` displays it.
//!
//! Events arrive ring by ring, so a free may be read before its allocation. Such a free waits for it. These figures
//! are for display; the file is authoritative.

use std::collections::HashMap;

use makeroom_trace::protocol::LiveMemory;
use makeroom_trace::room::EventKind;

use crate::record::event::RawEvent;

/// Frees that may wait for their allocation; more are dropped.
const MOST_WAITING: usize = 4096;

/// Kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Device,
    Physical,
    Pinned,
}

/// A live allocation.
#[derive(Clone, Copy, Debug)]
struct LiveAllocation {
    bytes: u64,
    context: u64,
}

/// The tracked memory.
#[derive(Debug, Default)]
pub(crate) struct Live {
    held: HashMap<(Kind, u64), LiveAllocation>,
    waiting: HashMap<(Kind, u64), u64>,
    figures: LiveMemory,
    /// Below zero while a free was read before its allocation.
    tensor_bytes: i64,
    told: Option<LiveMemory>,
}

impl Live {
    /// Updates the figures with an event.
    pub(crate) fn see(&mut self, event: &RawEvent) {
        if event.result != 0 {
            return;
        }
        let key = |kind| (kind, event.address);
        match EventKind::from_number(event.kind) {
            EventKind::DeviceAlloc
            | EventKind::PitchedAlloc
            | EventKind::ManagedAlloc
            | EventKind::StreamAlloc
            | EventKind::ArrayAlloc
            | EventKind::MipmappedAlloc => self.take(key(Kind::Device), event),
            EventKind::DeviceFree
            | EventKind::StreamFree
            | EventKind::ArrayFree
            | EventKind::MipmappedFree => self.give(key(Kind::Device), event.time_ns),
            EventKind::PhysicalCreate if event.extra == 0 => self.take(key(Kind::Physical), event),
            EventKind::PhysicalRelease => self.give(key(Kind::Physical), event.time_ns),
            EventKind::PinnedAlloc | EventKind::HostRegister => self.take(key(Kind::Pinned), event),
            EventKind::PinnedFree | EventKind::HostUnregister => self.give(key(Kind::Pinned), event.time_ns),
            EventKind::ContextDestroy => self.end_context(event.context),
            EventKind::TensorAlloc => {
                self.add_tensors(event.size.cast_signed());
                self.figures.allocations += 1;
            }
            EventKind::TensorFree => self.add_tensors(event.size.cast_signed().wrapping_neg()),
            _ => {}
        }
    }

    /// A free has the size of its allocation, so the order in which the two are read does not matter.
    fn add_tensors(&mut self, bytes: i64) {
        self.tensor_bytes = self.tensor_bytes.saturating_add(bytes);
        self.figures.tensors = u64::try_from(self.tensor_bytes).unwrap_or(0);
    }

    fn total(&mut self, kind: Kind) -> &mut u64 {
        if kind == Kind::Pinned { &mut self.figures.pinned } else { &mut self.figures.device }
    }

    fn take(&mut self, key: (Kind, u64), event: &RawEvent) {
        self.figures.allocations += 1;
        if self.waiting.remove(&key).is_some_and(|freed_ns| freed_ns >= event.time_ns) {
            return;
        }
        *self.total(key.0) += event.size;
        let held = LiveAllocation { bytes: event.size, context: event.context };
        if let Some(lost) = self.held.insert(key, held) {
            *self.total(key.0) -= lost.bytes;
        }
    }

    fn give(&mut self, key: (Kind, u64), time_ns: u64) {
        if let Some(held) = self.held.remove(&key) {
            *self.total(key.0) -= held.bytes;
        } else if self.waiting.len() < MOST_WAITING {
            self.waiting.insert(key, time_ns);
        }
    }

    fn end_context(&mut self, context: u64) {
        let mut gone = 0;
        self.held.retain(|&(kind, _), held| {
            let is_gone = kind == Kind::Device && held.context == context;
            gone += if is_gone { held.bytes } else { 0 };
            !is_gone
        });
        self.figures.device -= gone;
    }

    /// The figures, if they changed since the last call.
    pub(crate) fn news(&mut self) -> Option<LiveMemory> {
        (self.told.replace(self.figures) != Some(self.figures)).then_some(self.figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, time_ns: u64, address: u64, size: u64) -> RawEvent {
        RawEvent { time_ns, context: 7, ..RawEvent::new(kind).at(address).size(size) }
    }

    #[test]
    fn what_is_held_is_what_was_taken_and_not_given_back() {
        let mut live = Live::default();
        live.see(&event(EventKind::DeviceAlloc, 1, 100, 10));
        live.see(&event(EventKind::PinnedAlloc, 2, 100, 20));
        live.see(&event(EventKind::PhysicalCreate, 3, 100, 30));
        live.see(&event(EventKind::TensorAlloc, 4, 100, 4));
        live.see(&RawEvent { result: 2, ..event(EventKind::DeviceAlloc, 5, 0, 999) });
        let expected = LiveMemory { device: 40, pinned: 20, tensors: 4, allocations: 4 };
        assert_eq!(live.news(), Some(expected));
        assert_eq!(live.news(), None);
        live.see(&event(EventKind::DeviceFree, 6, 100, 0));
        live.see(&event(EventKind::PhysicalRelease, 7, 100, 0));
        assert_eq!(live.news(), Some(LiveMemory { device: 0, ..expected }));
        live.see(&event(EventKind::DeviceAlloc, 8, 200, 5));
        live.see(&event(EventKind::ContextDestroy, 9, 0, 0));
        assert_eq!(live.news().unwrap().device, 0);
    }

    #[test]
    fn a_free_that_is_read_first_ends_the_allocation_that_comes_later() {
        let mut live = Live::default();
        live.see(&event(EventKind::DeviceFree, 5, 100, 0));
        live.see(&event(EventKind::DeviceAlloc, 4, 100, 10));
        assert_eq!(live.news().unwrap().device, 0);
        live.see(&event(EventKind::DeviceAlloc, 6, 100, 10));
        assert_eq!(live.news().unwrap().device, 10);
    }

    #[test]
    fn tensors_that_are_freed_by_another_thread_do_not_add_up() {
        let mut live = Live::default();
        for step in 0..10 {
            live.see(&event(EventKind::TensorFree, 2 * step + 1, 100, 8));
            live.see(&event(EventKind::TensorAlloc, 2 * step, 100, 8));
        }
        live.see(&event(EventKind::TensorAlloc, 30, 200, 4));
        assert_eq!(live.news().unwrap().tensors, 4);
    }
}
