//! What a running program's own `.room` recording says of it: live and managed bytes of each device.
//!
//! ```text
//! budget    time and bytes for all recordings together; reads each in a thread that can be abandoned
//! sum       adds up one recording in bounded memory
//! ```
//!
//! The file is being written while it is read; complete frames are read. It is opened through the process's own
//! descriptor, so it is found whatever it is called there, in a container too.

mod budget;
mod sum;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use makeroom_core::Bytes;

use crate::processes::shown;
pub(crate) use budget::{Budget, read_all};
use sum::Sum;

/// What the recorder calls its thread.
const WRITER: &[u8] = b"makeroom";
/// Threads of one process that are looked at.
pub(crate) const MOST_THREADS: usize = 1 << 14;

/// What a recording says of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Where the program writes it.
    pub name: PathBuf,
    /// Where it can be opened from here.
    pub path: PathBuf,
    /// What the program holds of the device now, by its own calls; `None` when the file could not be added up within the
    /// budget.
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

/// What a recording with these sums says; without them it has only its name.
fn recordings((path, name): &(PathBuf, PathBuf), sums: Option<HashMap<String, Sum>>) -> Recordings {
    let blank = Recording { name: name.clone(), path: path.clone(), ..Recording::default() };
    let of_device = |(uuid, sum): (String, Sum)| {
        let live = Some(Bytes::new(sum.live));
        let managed = Bytes::new(sum.managed);
        (uuid, Recording { live, managed, imported: sum.imported, refused: sum.refused, ..blank.clone() })
    };
    let mut recordings: Recordings = sums.into_iter().flatten().map(of_device).collect();
    if recordings.is_empty() {
        recordings.insert(String::new(), blank);
    }
    recordings
}

/// Opens a recording of someone else's process for reading. Waits for nothing: only a plain file is opened.
pub fn open_recording(path: &Path) -> Option<File> {
    crate::processes::open(path)
}

/// Whether a process has this file open: then its recording still goes on. Of a process in another namespace, or of
/// another user, it cannot be told.
pub fn is_being_written(path: &Path, pid: u32) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let process = PathBuf::from(format!("/proc/{pid}"));
    let threads = threads(&process, MOST_THREADS);
    writers(&threads)
        .chain([process.join("fd")])
        .flat_map(|table| std::fs::read_dir(table).into_iter().flatten().flatten())
        .any(|file| std::fs::read_link(file.path()).is_ok_and(|open| open == path))
}

/// The folders of a process's first threads.
pub(crate) fn threads(process: &Path, most: usize) -> Vec<PathBuf> {
    let threads = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    threads.take(most).map(|thread| thread.path()).collect()
}

/// The descriptor tables of the recorder among a process's threads: its thread has a table of its own.
pub(crate) fn writers(threads: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    threads
        .iter()
        .filter(|thread| std::fs::read(thread.join("comm")).is_ok_and(|name| name.trim_ascii_end() == WRITER))
        .map(|thread| thread.join("fd"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_a_file_is_called_does_nothing_to_a_terminal() {
        let found = Recording { name: "/tmp/\u{1b}[2J.room".into(), ..Recording::default() };
        assert_eq!(found.shown_name(), "/tmp/ [2J.room");
    }
}
