//! Memory that the driver keeps for a process beyond its live allocations, at each sample of a device:
//!
//! ```text
//! streams   memory reserved by its pool − live stream-ordered memory
//! graphs    memory reserved for graphs − their live allocations
//! unmapped  Σ physical memory that exists but is not mapped
//! ```
//!
//! A pool whose request fails keeps the memory it had received until then, and so do expandable segments for a moment.
//! At a failure, this can be more than the context.

use makeroom_core::{Bytes, DeviceIndex, DriverKeeps, FastMap, SortCompact as _};
use makeroom_ordered::OrderedMap;

use super::Clock;
use super::collect::{Collected, MemoryEventRow, ON_HOST, OtherEvent, Role};
use crate::room::EventKind;

/// Processes all events in order of time. The result is sorted by device and time.
pub(super) fn find(clock: Clock, collected: &Collected) -> Vec<DriverKeeps> {
    let mut keepers: FastMap<DeviceIndex, Keeper> = FastMap::default();
    // A framework's blocks are in memory that it has taken already.
    let mut rows = collected.rows.of_driver().filter(|row| !row.is_refused).peekable();
    let mut others = collected.others.iter().filter(|other| other.result == 0).peekable();
    let mut found = Vec::new();
    for sample in &collected.device_samples {
        let (since_ns, device) = (sample.since_ns, sample.measured.device);
        loop {
            let row_ns = rows.peek().map_or(i64::MAX, |row| row.since_ns);
            let other_ns = others.peek().map_or(i64::MAX, |other| other.since_ns);
            if row_ns.min(other_ns) > since_ns {
                break;
            }
            if row_ns <= other_ns {
                let Some(row) = rows.next() else { break };
                keepers.entry(row.device).or_default().happens(&row);
            } else if let Some(other) = others.next() {
                keepers.entry(other.device).or_default().happens_beside(other);
            }
        }
        let keeper = keepers.entry(device).or_default();
        found.push(keeper.keeps(clock.date_us(since_ns), device));
    }
    found.sort_compact_by_key(|keeps| keeps.device);
    found
}

/// The state of a device during the import.
#[derive(Default)]
struct Keeper {
    streams: Pool,
    graphs: Pool,
    handles: FastMap<u64, Physical>,
    /// The handle mapped at each address.
    places: OrderedMap<u64, u64>,
    /// Σ of unmapped physical memory.
    unmapped: u128,
}

/// Memory that the driver allocates in large pieces and suballocates.
#[derive(Default)]
struct Pool {
    taken: u64,
    live: FastMap<u64, u64>,
    /// Wider than a size: the sizes in a damaged file can add up to any sum.
    handed_out: u128,
}

/// Physical memory. It exists while it is held or mapped.
struct Physical {
    size: u64,
    holds: u64,
    places: u64,
}

impl Physical {
    /// How much of it is not mapped.
    fn unmapped(&self) -> u128 {
        if self.places == 0 { self.size.into() } else { 0 }
    }
}

impl Pool {
    fn hand_out(&mut self, row: &MemoryEventRow) {
        let lost = self.live.insert(row.address, row.size).unwrap_or(0);
        self.handed_out = self.handed_out - u128::from(lost) + u128::from(row.size);
    }

    fn take_back(&mut self, address: u64) {
        self.handed_out -= u128::from(self.live.remove(&address).unwrap_or(0));
    }

    fn unused(&self) -> Bytes {
        let handed_out = u64::try_from(self.handed_out).unwrap_or(u64::MAX);
        Bytes::new(self.taken.saturating_sub(handed_out))
    }
}

impl Keeper {
    fn happens(&mut self, row: &MemoryEventRow) {
        match (row.role, row.kind) {
            (Role::Take, EventKind::StreamAlloc) => self.streams.hand_out(row),
            (Role::Take, EventKind::GraphAlloc) => self.graphs.hand_out(row),
            (Role::Give, _) => {
                self.streams.take_back(row.address);
                self.graphs.take_back(row.address);
            }
            (Role::Create, _) if row.extra != ON_HOST => {
                let physical = Physical { size: row.size, holds: 1, places: 0 };
                self.unmapped += u128::from(row.size);
                if let Some(lost) = self.handles.insert(row.address, physical) {
                    self.unmapped -= lost.unmapped();
                }
            }
            (Role::Map, _) => {
                self.places.insert(row.address, row.extra);
                self.change(row.extra, |physical| physical.places += 1);
            }
            (Role::Unmap, _) => {
                let end = row.address.saturating_add(row.size);
                let places: Vec<u64> = self.places.range(row.address..end).map(|(&place, _)| place).collect();
                for place in places {
                    let handle = self.places.remove(&place).unwrap_or(0);
                    self.change(handle, |physical| physical.places = physical.places.saturating_sub(1));
                }
            }
            _ => {}
        }
    }

    fn happens_beside(&mut self, other: &OtherEvent) {
        let event = other;
        match event.kind {
            EventKind::PoolMemory => self.streams.taken = event.size.get(),
            EventKind::GraphMemory => self.graphs.taken = event.size.get(),
            EventKind::PhysicalRetain => self.change(event.address.0, |physical| physical.holds += 1),
            EventKind::PhysicalRelease => {
                self.change(event.address.0, |physical| physical.holds = physical.holds.saturating_sub(1));
            }
            _ => {}
        }
    }

    fn change(&mut self, handle: u64, change: impl FnOnce(&mut Physical)) {
        if let Some(physical) = self.handles.get_mut(&handle) {
            self.unmapped -= physical.unmapped();
            change(physical);
            self.unmapped += physical.unmapped();
            if physical.holds == 0 && physical.places == 0 {
                self.unmapped -= physical.unmapped();
                self.handles.remove(&handle);
            }
        }
    }

    fn keeps(&self, time_us: u64, device: DeviceIndex) -> DriverKeeps {
        DriverKeeps {
            time_us,
            device,
            streams: self.streams.unused(),
            graphs: self.graphs.unused(),
            unmapped: Bytes::new(u64::try_from(self.unmapped).unwrap_or(u64::MAX)),
        }
    }
}
