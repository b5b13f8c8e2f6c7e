//! Computes the live memory of one recording in bounded memory.
//!
//! Each frame holds events of one thread, and only timestamps order the events of different threads. So instead of a
//! running total, this keeps the latest event of each address: memory is live if that is an allocation. An allocation
//! at an address that is still live replaces the earlier one, because the free in between was lost.

use std::collections::HashMap;
use std::io::Read;
use std::time::Instant;

use makeroom_core::DeviceIndex;
use makeroom_ordered::{OrderedMap, OrderedSet};
use makeroom_trace::room::{Event, EventKind, Frame, Reader, Record};

/// Maximum number of entries (addresses, devices and so on), about 60 MB. Recordings with more are given up.
const MOST_ENTRIES: usize = 1 << 19;
/// Number of records between checks of the deadline.
const RECORDS_PER_LOOK: u32 = 4096;

/// A program's memory on one device.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) live: u64,
    pub(super) managed: u64,
    pub(super) imported: u64,
    pub(super) refused: u64,
}

/// Sums up a recording by device UUID; `None` if it is not a recording, has too many addresses, or is not done by
/// `ends`.
pub(super) fn add_up(file: impl Read, ends: Instant) -> Option<OrderedMap<String, Sum>> {
    let mut reader = Reader::new(file).ok()?;
    let mut latest = Latest::default();
    let mut records_left = RECORDS_PER_LOOK;
    // A file that is being written usually ends in a partial frame.
    while let Ok(Some(frame)) = reader.next_frame() {
        if Instant::now() >= ends {
            return None;
        }
        let Frame::Records(records) = frame else { continue };
        for record in records.map_while(Result::ok) {
            records_left -= 1;
            if records_left == 0 {
                records_left = RECORDS_PER_LOOK;
                if Instant::now() >= ends || latest.entries() > MOST_ENTRIES {
                    return None;
                }
            }
            match record {
                Record::Device(device) => {
                    latest.uuids.insert(device.device, String::from_utf8_lossy(&device.uuid).into_owned());
                }
                Record::Event(event) => latest.add(&event),
                _ => {}
            }
        }
    }
    Some(latest.sums())
}

/// The latest event of each address.
#[derive(Debug, Default)]
struct Latest {
    uuids: OrderedMap<DeviceIndex, String>,
    /// Whether the address is a handle, and the address.
    places: HashMap<(bool, u64), DeviceSum>,
    /// Imported memory: the time of the latest event, and whether it opened the memory.
    imports: HashMap<(DeviceIndex, u64), (u64, bool)>,
    refused: OrderedMap<DeviceIndex, u64>,
    /// All devices with an event, including those without live memory.
    devices: OrderedSet<DeviceIndex>,
}

#[derive(Debug)]
struct DeviceSum {
    time_ns: u64,
    device: DeviceIndex,
    live: u64,
    managed: u64,
}

impl Latest {
    fn entries(&self) -> usize {
        self.uuids.len() + self.places.len() + self.imports.len() + self.refused.len() + self.devices.len()
    }

    fn add(&mut self, event: &Event) {
        let (device, time_ns) = (event.device, event.time_ns);
        self.devices.insert(device);
        if event.result != 0 {
            if event.result == 2 && is_taking(event) {
                *self.refused.entry(device).or_default() += 1;
            }
            return;
        }
        if matches!(event.kind, EventKind::IpcOpen | EventKind::IpcClose) {
            let now = (time_ns, event.kind == EventKind::IpcOpen);
            let known = self.imports.entry((device, event.address.0)).or_insert(now);
            if known.0 <= time_ns {
                *known = now;
            }
        } else if is_taking(event) || is_giving(event.kind) {
            let live = if is_taking(event) { event.size.get() } else { 0 };
            let managed = if event.kind == EventKind::ManagedAlloc { live } else { 0 };
            let now = || DeviceSum { time_ns, device, live, managed };
            let place = (is_handle(event.kind), event.address.0);
            let known = self.places.entry(place).or_insert_with(now);
            // On equal timestamps, the later event in the file wins.
            if known.time_ns <= time_ns {
                *known = now();
            }
        }
    }

    /// Saturating, because the file is untrusted and may contain any figures.
    fn sums(self) -> OrderedMap<String, Sum> {
        let mut sums: OrderedMap<String, Sum> = OrderedMap::new();
        let uuid = |device: DeviceIndex| self.uuids.get(&device).cloned().unwrap_or_default();
        for &device in &self.devices {
            sums.entry(uuid(device)).or_default();
        }
        for place in self.places.values().filter(|place| place.live > 0) {
            let sum = sums.entry(uuid(place.device)).or_default();
            sum.live = sum.live.saturating_add(place.live);
            sum.managed = sum.managed.saturating_add(place.managed);
        }
        for (&(device, _), _) in self.imports.iter().filter(|(_, (_, is_open))| *is_open) {
            sums.entry(uuid(device)).or_default().imported += 1;
        }
        for (&device, &count) in &self.refused {
            sums.entry(uuid(device)).or_default().refused += count;
        }
        sums
    }
}

/// Whether the event allocates device memory.
pub(crate) fn is_taking(event: &Event) -> bool {
    match event.kind {
        EventKind::DeviceAlloc
        | EventKind::PitchedAlloc
        | EventKind::ArrayAlloc
        | EventKind::MipmappedAlloc
        | EventKind::ManagedAlloc
        | EventKind::StreamAlloc => true,
        // 1 means physical memory on the host.
        EventKind::PhysicalCreate => event.extra == 0,
        _ => false,
    }
}

fn is_giving(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::DeviceFree
            | EventKind::ArrayFree
            | EventKind::MipmappedFree
            | EventKind::StreamFree
            | EventKind::PhysicalRelease
    )
}

/// Handles are small integers that may coincide with addresses.
fn is_handle(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::PhysicalCreate
            | EventKind::PhysicalRelease
            | EventKind::ArrayAlloc
            | EventKind::ArrayFree
            | EventKind::MipmappedAlloc
            | EventKind::MipmappedFree
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use makeroom_core::{Address, Bytes};
    use makeroom_trace::room::{Encoder, Header, ThreadNumber, beginning, seal};

    use super::*;

    fn event(kind: EventKind, time_ns: u64, address: u64, size: u64) -> Record {
        let (address, size) = (Address(address), Bytes::new(size));
        Record::Event(Event { kind, time_ns, address, size, ..Event::default() })
    }

    /// A recording with one frame per thread.
    fn file(threads: &[&[Record]]) -> Vec<u8> {
        let mut file = beginning(&Header::default());
        for (number, records) in threads.iter().enumerate() {
            let mut encoder = Encoder::new(ThreadNumber(number as u64), Vec::new());
            for record in *records {
                encoder.record(record);
            }
            assert!(seal(encoder.bytes(), &mut file));
        }
        file
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn sum(threads: &[&[Record]]) -> Sum {
        add_up(&file(threads)[..], soon()).unwrap().remove("").unwrap()
    }

    #[test]
    fn a_free_that_was_lost_is_made_up_for_when_its_place_is_taken_again() {
        let found = sum(&[&[
            event(EventKind::ManagedAlloc, 1, 64, 100),
            event(EventKind::DeviceAlloc, 2, 64, 30),
            event(EventKind::DeviceAlloc, 3, 640, 5),
            event(EventKind::DeviceFree, 4, 640, 0),
        ]]);
        assert_eq!((found.live, found.managed), (30, 0));
    }

    #[test]
    fn time_orders_the_events_of_threads_and_not_the_file() {
        let found = sum(&[
            &[event(EventKind::DeviceFree, 5, 64, 0), event(EventKind::IpcClose, 5, 8, 0)],
            &[
                event(EventKind::DeviceAlloc, 1, 64, 100),
                event(EventKind::IpcOpen, 1, 8, 0),
                event(EventKind::IpcOpen, 2, 16, 0),
                event(EventKind::DeviceAlloc, 9, 128, 7),
                event(EventKind::DeviceFree, 9, 192, 0),
                event(EventKind::DeviceAlloc, 9, 192, 2),
            ],
        ]);
        assert_eq!((found.live, found.imported), (9, 1));
    }

    #[test]
    fn absurd_sizes_of_someone_elses_file_are_no_crash() {
        let most = u64::MAX;
        let found = sum(&[&[
            event(EventKind::ManagedAlloc, 1, 64, most),
            event(EventKind::ManagedAlloc, 2, 128, most),
        ]]);
        assert_eq!((found.live, found.managed), (most, most));
    }

    #[test]
    fn a_file_that_takes_too_long_or_too_much_memory_is_given_up() {
        let addresses = |count: u64| -> Vec<Record> {
            (0..count).map(|number| event(EventKind::DeviceAlloc, 1, number * 512, 512)).collect()
        };
        let small = file(&[&addresses(10_000)]);
        assert!(add_up(&small[..], soon()).is_some());
        assert!(add_up(&small[..], Instant::now()).is_none());
        assert!(add_up(&file(&[&addresses(MOST_ENTRIES as u64 + 5000)])[..], soon()).is_none());
    }
}
