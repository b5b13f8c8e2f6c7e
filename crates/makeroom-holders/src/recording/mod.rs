//! Figures from a running program's own `.room` recording: live and managed bytes on each device.
//!
//! ```text
//! budget    limits time and bytes for all recordings; reads each in a thread that can be abandoned
//! sum       adds up one recording in bounded memory
//! ```
//!
//! The file is still being written, so only complete frames are read. It is opened through the process's own file
//! descriptor, which works for any name and across containers.

mod budget;
mod sum;

use std::fs::File;
use std::path::{Path, PathBuf};

use makeroom_core::Bytes;
use makeroom_ordered::OrderedMap;

use crate::processes::shown;
pub(crate) use budget::{Budget, read_all};
use sum::Sum;
pub(crate) use sum::is_taking;

/// The name of the recorder's thread.
const WRITER: &[u8] = b"makeroom";
/// Maximum number of threads to inspect per process.
pub(crate) const MOST_THREADS: usize = 1 << 14;

/// A recording's figures for one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Where the program writes it.
    pub name: PathBuf,
    /// The path to open it with from here.
    pub path: PathBuf,
    /// The device memory that the program holds now, from its own calls; `None` if the file exceeded the budget.
    pub live: Option<Bytes>,
    /// The managed part of it, which the driver attributes to no process.
    pub managed: Bytes,
    /// Number of allocations imported from other processes.
    pub imported: u64,
    /// Failed allocations.
    pub refused: u64,
}

impl Recording {
    /// Its name without control characters: the process that writes the file chose it.
    pub fn shown_name(&self) -> String {
        shown(&self.name.to_string_lossy())
    }
}

/// The figures of a recording by device UUID; the empty key is for memory whose device is unknown.
pub(crate) type Recordings = OrderedMap<String, Recording>;

/// The figures from these sums; without sums, only the name.
fn recordings((path, name): &(PathBuf, PathBuf), sums: Option<OrderedMap<String, Sum>>) -> Recordings {
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

/// Opens a recording of another process. Does not block: only regular files are opened.
pub fn open_recording(path: &Path) -> Option<File> {
    crate::processes::open(path)
}

/// Whether a process has this file open and so is still recording. Always false for processes in another namespace or
/// of another user.
pub fn is_being_written(path: &Path, pid: u32) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let process = PathBuf::from(format!("/proc/{pid}"));
    let threads = threads(&process, MOST_THREADS);
    writers(&threads)
        .chain([process.join("fd")])
        .flat_map(|table| std::fs::read_dir(table).into_iter().flatten().flatten())
        .any(|file| std::fs::read_link(file.path()).is_ok_and(|open| open == path))
}

/// The directories of a process's threads, up to a limit.
pub(crate) fn threads(process: &Path, most: usize) -> Vec<PathBuf> {
    let threads = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    threads.take(most).map(|thread| thread.path()).collect()
}

/// The file descriptor tables of recorder threads: such a thread has a table of its own.
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
