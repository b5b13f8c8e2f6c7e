//! Physical memory and its mappings. Memory exists while the program holds a reference or a mapping of it.

use std::collections::{BTreeMap, VecDeque};

use makeroom_core::FastMap;

use super::Seen;
use crate::room::Event;

/// Unmapped ranges to remember, for a mapping that arrives after its end.
const MOST_ENDED: usize = 256;

/// Events of earlier memory to keep for each handle.
const MOST_EARLIER: usize = 64;

/// Physical memory with one handle.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// Its creation, and the references that were added and released since.
    history: Vec<Seen>,
    /// Memory that had this handle before and is still mapped.
    earlier: Vec<Seen>,
    holds: u64,
    mappings: u64,
}

/// All physical memory.
#[derive(Clone, Debug, Default)]
pub(super) struct PhysicalMemory {
    by_handle: FastMap<u64, Memory>,
    /// Mappings by address.
    mapped: BTreeMap<u64, Seen>,
    /// The latest unmapped ranges: start, end and time.
    ended: VecDeque<(u64, u64, u64)>,
}

impl PhysicalMemory {
    pub(super) fn create(&mut self, seen: Seen) {
        let memory = self.by_handle.entry(seen.event.address.0).or_default();
        // Handles are reused while mappings of the released memory remain.
        let mut earlier = std::mem::take(&mut memory.earlier);
        if memory.mappings > 0 && earlier.len() < MOST_EARLIER {
            earlier.append(&mut memory.history);
        }
        *memory = Memory { history: vec![seen], earlier, holds: 1, mappings: memory.mappings };
    }

    pub(super) fn retain(&mut self, seen: Seen) {
        if let Some(memory) = self.by_handle.get_mut(&seen.event.address.0) {
            memory.holds += 1;
            memory.history.push(seen);
        }
    }

    /// Releases a reference. Returns whether events are dropped.
    pub(super) fn release(&mut self, seen: Seen) -> bool {
        let handle = seen.event.address.0;
        let Some(memory) = self.by_handle.get_mut(&handle) else { return true };
        memory.holds = memory.holds.saturating_sub(1);
        memory.history.push(seen);
        // References that came and went need not be told.
        if memory.holds > 0 {
            memory.history.truncate(memory.holds as usize);
        }
        memory.holds > 0 || self.drop_if_gone(handle)
    }

    pub(super) fn map(&mut self, seen: Seen) {
        let (address, time_ns) = (seen.event.address.0, seen.event.time_ns);
        let is_ended =
            |&(start, end, ended): &(u64, u64, u64)| (start..end).contains(&address) && ended > time_ns;
        if self.ended.iter().any(is_ended) {
            return;
        }
        let handle = seen.event.extra;
        let before = self.mapped.insert(address, seen);
        if let Some(memory) = self.by_handle.get_mut(&handle) {
            memory.mappings += 1;
        }
        if let Some(before) = before {
            self.unmap_one(before.event.extra);
        }
    }

    /// Unmaps a range. Returns whether events are dropped.
    pub(super) fn unmap(&mut self, event: &Event) -> bool {
        let start = event.address.0;
        let end = start.saturating_add(event.size.get());
        let inside = self.mapped.range(start..end);
        let gone: Vec<(u64, u64)> = inside
            .filter(|(_, seen)| seen.event.time_ns <= event.time_ns)
            .map(|(&address, seen)| (address, seen.event.extra))
            .collect();
        for (address, handle) in gone {
            self.mapped.remove(&address);
            self.unmap_one(handle);
        }
        if self.ended.len() == MOST_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((start, end, event.time_ns));
        true
    }

    fn unmap_one(&mut self, handle: u64) {
        if let Some(memory) = self.by_handle.get_mut(&handle) {
            memory.mappings = memory.mappings.saturating_sub(1);
            if memory.mappings == 0 {
                memory.earlier.clear();
            }
        }
        self.drop_if_gone(handle);
    }

    fn drop_if_gone(&mut self, handle: u64) -> bool {
        let is_gone =
            self.by_handle.get(&handle).is_some_and(|memory| memory.holds == 0 && memory.mappings == 0);
        if is_gone {
            self.by_handle.remove(&handle);
        }
        is_gone
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Seen> {
        let memory = self.by_handle.values().flat_map(|memory| memory.earlier.iter().chain(&memory.history));
        memory.chain(self.mapped.values())
    }
}
