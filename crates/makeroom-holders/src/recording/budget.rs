//! Limits the time and bytes spent on the recordings of all processes.
//!
//! Any user can run a process with a recording of any size on any file system, so all recordings share one budget.
//! They are read from the smallest to the largest, each in at most half of the remaining time. Recordings that do not
//! fit in the budget get no figures. A file system that does not respond blocks a thread, which is abandoned.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use makeroom_core::SortCompact as _;
use makeroom_ordered::OrderedMap;
use makeroom_trace::room::MAGIC;

use super::sum::add_up;
use super::{Recordings, open_recording, recordings};
use crate::helper::within;

/// The limits for all recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) time: Duration,
    pub(crate) bytes: u64,
}

impl Budget {
    /// For an interactive command.
    pub(crate) const USUAL: Self = Self { time: Duration::from_millis(500), bytes: 64 << 20 };
}

/// Timeout for opening one file. Opening takes at most half of the budget in total.
const OPENING: Duration = Duration::from_millis(20);
/// How late a read may notice its deadline.
const SLACK: Duration = Duration::from_millis(20);

/// Reads the recordings of processes, each given as the path to open and its name. The result contains all of them;
/// those beyond the budget have no figures. Other files are left out.
pub(crate) fn read_all(
    files: impl IntoIterator<Item = (u32, (PathBuf, PathBuf))>,
    budget: Budget,
) -> OrderedMap<u32, Recordings> {
    let ends = Instant::now() + budget.time;
    let opens_until = Instant::now() + budget.time / 2;
    let mut opened = Vec::new();
    let mut read = OrderedMap::new();
    for (pid, paths) in files {
        let path = paths.0.clone();
        let found = within(OPENING.min(remaining(opens_until)), move || open(&path));
        if matches!(found, Some(Found::Other)) {
            continue;
        }
        read.insert(pid, recordings(&paths, None));
        if let Some(Found::Recording { bytes, file }) = found {
            opened.push((bytes, pid, paths, file));
        }
    }
    opened.sort_compact_by_key(|&(bytes, pid, ..)| (bytes, pid));
    let mut bytes_left = budget.bytes;
    for (bytes, pid, paths, file) in opened {
        let share = remaining(ends) / 2;
        if bytes > bytes_left || share < SLACK {
            break;
        }
        bytes_left -= bytes;
        let until = Instant::now() + share;
        // The file may grow while it is read.
        let sums = within(share + SLACK, move || add_up(file.take(bytes), until)).flatten();
        read.insert(pid, recordings(&paths, sums));
    }
    read
}

fn remaining(ends: Instant) -> Duration {
    ends.saturating_duration_since(Instant::now())
}

/// What a file is that has the name of a recording.
enum Found {
    Recording {
        bytes: u64,
        file: File,
    },
    /// Not a regular file, or one with another content.
    Other,
    /// It cannot be read.
    Unknown,
}

fn open(path: &Path) -> Found {
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Found::Other;
    }
    let Some(file) = open_recording(path) else { return Found::Unknown };
    let mut start = [0; MAGIC.len()];
    match (file.metadata(), file.read_exact_at(&mut start, 0)) {
        (Ok(found), Ok(())) if start == MAGIC => Found::Recording { bytes: found.len(), file },
        (Ok(_), Ok(())) => Found::Other,
        (Ok(_), Err(error)) if error.kind() == ErrorKind::UnexpectedEof => Found::Other,
        _ => Found::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Address, Bytes};
    use makeroom_trace::room::{Encoder, Event, Header, Record, ThreadNumber, beginning, seal};

    use super::*;

    /// A recording with 512 live bytes per event.
    fn write(name: &str, events: u64) -> (PathBuf, PathBuf) {
        let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
        for number in 0..events {
            let (address, size) = (Address(number * 512), Bytes::new(512));
            encoder.record(&Record::Event(Event { address, size, ..Event::default() }));
        }
        let mut file = beginning(&Header::default());
        assert!(seal(encoder.bytes(), &mut file));
        let path = std::env::temp_dir().join(format!("makeroom-budget-{name}-{}.room", std::process::id()));
        std::fs::write(&path, file).unwrap();
        (path.clone(), path)
    }

    fn live(read: &OrderedMap<u32, Recordings>, pid: u32) -> Option<u64> {
        read[&pid].get("")?.live.map(Bytes::get)
    }

    #[test]
    fn small_recordings_come_first_and_the_rest_has_no_figures() {
        let (small, middle, large) = (write("small", 10), write("middle", 1000), write("large", 5000));
        let size = |path: &PathBuf| std::fs::metadata(path).unwrap().len();
        let files = [(1, large.clone()), (2, small.clone()), (3, middle.clone())];
        let time = Duration::from_secs(60);
        let all = read_all(files.clone(), Budget { time, bytes: 1 << 20 });
        assert_eq!(
            [live(&all, 1), live(&all, 2), live(&all, 3)],
            [Some(5000 * 512), Some(5120), Some(512_000)]
        );
        let bytes = size(&small.0) + size(&middle.0) + size(&large.0) - 1;
        let most = read_all(files.clone(), Budget { time, bytes });
        assert_eq!([live(&most, 1), live(&most, 2), live(&most, 3)], [None, Some(5120), Some(512_000)]);
        assert_eq!(most[&1][""].name, large.1, "it still has its name");
        let none = read_all(files, Budget { time: Duration::ZERO, bytes });
        assert_eq!([live(&none, 1), live(&none, 2), live(&none, 3)], [None; 3]);
        for (path, _) in [small, middle, large] {
            std::fs::remove_file(path).unwrap();
        }
    }
}
