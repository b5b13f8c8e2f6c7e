//! What a running program's own `.room` recording says of it: live, managed and peak bytes of each device.
//!
//! The file is being written while it is read; what is whole is read. It is opened through the process's own
//! descriptor, so it is found whatever it is called there, in a container too.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use makeroom_core::Bytes;
use makeroom_trace::room::{Event, EventKind, Frame, Reader, Record};

/// A longer file is not read: `makeroom why` does that, with patience.
const LONGEST_FILE: u64 = 128 << 20;

/// What a recording says of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Where the program writes it.
    pub name: PathBuf,
    /// Where it can be opened from here.
    pub path: PathBuf,
    /// What the program holds of the device now, by its own calls; `None` when the file is too long to add up.
    pub live: Option<Bytes>,
    /// The part of it that is managed memory, which the driver counts for nobody.
    pub managed: Bytes,
    /// Pieces of other processes' memory that it has open.
    pub imported: u64,
    /// Allocations that were refused.
    pub refused: u64,
}

/// What all devices' recordings say, by the devices' UUIDs; under the empty name what no device is known for.
pub(crate) type Recordings = HashMap<String, Recording>;

/// Reads the recording of a process. A file that cannot be read has no figures.
pub(crate) fn read(path: &Path, name: &Path) -> Recordings {
    let blank = Recording { name: name.to_owned(), path: path.to_owned(), ..Recording::default() };
    let sums = add_up(path);
    let mut recordings = Recordings::new();
    for (uuid, sum) in sums.unwrap_or_default() {
        let live = Some(Bytes::new(sum.live));
        let managed = Bytes::new(sum.managed);
        let (imported, refused) = (sum.imported.len() as u64, sum.refused);
        recordings.insert(uuid, Recording { live, managed, imported, refused, ..blank.clone() });
    }
    if recordings.is_empty() {
        recordings.insert(String::new(), blank);
    }
    recordings
}

#[derive(Debug, Default)]
struct Sum {
    live: u64,
    managed: u64,
    imported: HashSet<u64>,
    refused: u64,
}

fn add_up(path: &Path) -> Option<HashMap<String, Sum>> {
    let file = crate::processes::open(path)?;
    if file.metadata().ok()?.len() > LONGEST_FILE {
        return None;
    }
    // It grows while it is read.
    let mut reader = Reader::new(file.take(LONGEST_FILE)).ok()?;
    let mut uuids = HashMap::new();
    let mut events: Vec<Event> = Vec::new();
    // A torn end is the normal case of a file that is being written.
    while let Ok(Some(frame)) = reader.next_frame() {
        let Frame::Records(records) = frame else { continue };
        for record in records.map_while(Result::ok) {
            match record {
                Record::Device(device) => {
                    uuids.insert(device.device, String::from_utf8_lossy(&device.uuid).into_owned());
                }
                Record::Event(event) => events.push(event),
                _ => {}
            }
        }
    }
    // Frames are one thread's each; only time orders them all.
    events.sort_by_key(|event| event.time_ns);
    let mut held: HashMap<(bool, u64), Event> = HashMap::new();
    let mut sums: HashMap<String, Sum> = HashMap::new();
    for event in events {
        let sum = sums.entry(uuids.get(&event.device).cloned().unwrap_or_default()).or_default();
        let (is_handle, address) = (is_handle(event.kind), event.address.0);
        if event.result != 0 {
            sum.refused += u64::from(event.result == 2 && is_taking(&event));
        } else if is_taking(&event) {
            sum.live += event.size.get();
            sum.managed += if event.kind == EventKind::ManagedAlloc { event.size.get() } else { 0 };
            held.insert((is_handle, address), event);
        } else if event.kind == EventKind::IpcOpen {
            sum.imported.insert(address);
        } else if event.kind == EventKind::IpcClose {
            sum.imported.remove(&address);
        } else if is_giving(event.kind)
            && let Some(taken) = held.remove(&(is_handle, address))
        {
            let uuid = uuids.get(&taken.device).cloned().unwrap_or_default();
            let sum = sums.entry(uuid).or_default();
            sum.live = sum.live.saturating_sub(taken.size.get());
            let managed = if taken.kind == EventKind::ManagedAlloc { taken.size.get() } else { 0 };
            sum.managed = sum.managed.saturating_sub(managed);
        }
    }
    Some(sums)
}

fn is_taking(event: &Event) -> bool {
    match event.kind {
        EventKind::DeviceAlloc
        | EventKind::PitchedAlloc
        | EventKind::ArrayAlloc
        | EventKind::MipmappedAlloc
        | EventKind::ManagedAlloc
        | EventKind::StreamAlloc => true,
        // Physical memory of the host has 1 here.
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

/// Handles are small numbers of another kind than addresses.
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
