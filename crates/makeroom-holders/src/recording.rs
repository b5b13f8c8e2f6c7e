//! What a running program's own `.room` recording says of it: live, managed and peak bytes of each device.
//!
//! The file is being written while it is read; what is whole is read. It is opened through the process's own
//! descriptor, so it is found whatever it is called there, in a container too.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use makeroom_core::Bytes;
use makeroom_trace::room::{Event, EventKind, Frame, Reader, Record};

use crate::processes::shown;

/// A longer file is not read: `makeroom why` does that, with patience.
const LONGEST_FILE: u64 = 128 << 20;

/// What the recorder calls its thread.
const WRITER: &[u8] = b"makeroom";
/// Threads of one process that are looked at.
const MOST_THREADS: usize = 1 << 14;

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

impl Recording {
    /// Its name as it can be shown: whoever writes the file chose it.
    pub fn shown_name(&self) -> String {
        shown(&self.name.to_string_lossy())
    }
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

/// Whether a process has this file open: then its recording still goes on. Of a process in another namespace, or of
/// another user, it cannot be told.
pub fn is_being_written(path: &Path, pid: u32) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let process = PathBuf::from(format!("/proc/{pid}"));
    let tables = writers(&process).chain([process.join("fd")]);
    tables
        .flat_map(|table| std::fs::read_dir(table).into_iter().flatten().flatten())
        .any(|file| std::fs::read_link(file.path()).is_ok_and(|open| open == path))
}

/// The tables of descriptors of a process's recorder: its thread has one of its own.
pub(crate) fn writers(process: &Path) -> impl Iterator<Item = PathBuf> {
    let threads = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten().take(MOST_THREADS);
    threads
        .map(|thread| thread.path())
        .filter(|thread| std::fs::read(thread.join("comm")).is_ok_and(|name| name.trim_ascii_end() == WRITER))
        .map(|thread| thread.join("fd"))
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
        let uuid = |device| uuids.get(&device).cloned().unwrap_or_default();
        let place = (is_handle(event.kind), event.address.0);
        let sum = sums.entry(uuid(event.device)).or_default();
        let gone = if event.result != 0 {
            sum.refused += u64::from(event.result == 2 && is_taking(&event));
            None
        } else if is_taking(&event) {
            sum.take(&event);
            // Handed out again: that it was given back in between was lost.
            held.insert(place, event)
        } else if event.kind == EventKind::IpcOpen {
            sum.imported.insert(event.address.0);
            None
        } else if event.kind == EventKind::IpcClose {
            sum.imported.remove(&event.address.0);
            None
        } else if is_giving(event.kind) {
            held.remove(&place)
        } else {
            None
        };
        if let Some(gone) = gone {
            sums.entry(uuid(gone.device)).or_default().give(&gone);
        }
    }
    Some(sums)
}

/// Saturating: the file is somebody else's, and may say anything.
impl Sum {
    fn take(&mut self, event: &Event) {
        self.live = self.live.saturating_add(event.size.get());
        self.managed = self.managed.saturating_add(managed(event));
    }

    fn give(&mut self, event: &Event) {
        self.live = self.live.saturating_sub(event.size.get());
        self.managed = self.managed.saturating_sub(managed(event));
    }
}

fn managed(event: &Event) -> u64 {
    if event.kind == EventKind::ManagedAlloc { event.size.get() } else { 0 }
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

#[cfg(test)]
mod tests {
    use makeroom_core::Address;
    use makeroom_trace::room::{Encoder, Header, ThreadNumber, beginning, seal};

    use super::*;

    fn event(kind: EventKind, time_ns: u64, address: u64, size: u64) -> Record {
        let (address, size) = (Address(address), Bytes::new(size));
        Record::Event(Event { kind, time_ns, address, size, ..Event::default() })
    }

    /// What a recording with these events says.
    fn says(test: &str, events: &[Record]) -> Recording {
        let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
        for event in events {
            encoder.record(event);
        }
        let mut file = beginning(&Header::default());
        assert!(seal(encoder.bytes(), &mut file));
        let path = std::env::temp_dir().join(format!("makeroom-{test}-{}.room", std::process::id()));
        std::fs::write(&path, file).unwrap();
        let mut recordings = read(&path, &path);
        std::fs::remove_file(path).unwrap();
        recordings.remove("").unwrap()
    }

    #[test]
    fn a_free_that_was_lost_is_made_up_for_when_its_place_is_taken_again() {
        let found = says(
            "lost-free",
            &[
                event(EventKind::ManagedAlloc, 1, 64, 100),
                event(EventKind::DeviceAlloc, 2, 64, 30),
                event(EventKind::DeviceAlloc, 3, 640, 5),
                event(EventKind::DeviceFree, 4, 640, 0),
            ],
        );
        assert_eq!((found.live, found.managed), (Some(Bytes::new(30)), Bytes::ZERO));
    }

    #[test]
    fn a_file_is_being_written_while_its_process_has_it_open() {
        let path = std::env::temp_dir().join(format!("makeroom-open-{}.room", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        assert!(is_being_written(&path, std::process::id()));
        drop(file);
        assert!(!is_being_written(&path, std::process::id()));
        std::fs::remove_file(&path).unwrap();
        assert!(!is_being_written(&path, std::process::id()));
    }

    #[test]
    fn absurd_sizes_of_somebody_elses_file_are_no_crash() {
        let most = u64::MAX;
        let found = says(
            "absurd",
            &[event(EventKind::ManagedAlloc, 1, 64, most), event(EventKind::ManagedAlloc, 2, 128, most)],
        );
        assert_eq!((found.live, found.managed), (Some(Bytes::MAX), Bytes::MAX));
    }

    #[test]
    fn what_a_file_is_called_does_nothing_to_a_terminal() {
        let found = Recording { name: "/tmp/\u{1b}[2J.room".into(), ..Recording::default() };
        assert_eq!(found.shown_name(), "/tmp/ [2J.room");
    }
}
