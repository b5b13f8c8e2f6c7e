//! Follows one recording while it is written, and counts its failed allocations.
//!
//! Each turn reads the frames appended since the last one, up to a number of bytes and a deadline, because any user can
//! write a recording of any size. The file is opened through the process's own descriptor and stays open, so what a
//! process wrote just before it ended is still read, even across containers and after the file was deleted.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use makeroom_trace::room::{EventKind, FRAME_HEAD, Frame, LONGEST_PAYLOAD, Reader, Record, Records};

use crate::recording::{is_taking, open_recording};

/// The driver's result for a failed allocation.
const OUT_OF_MEMORY: u32 = 2;
/// Number of records between checks of the deadline.
const RECORDS_PER_LOOK: usize = 4096;
/// If more than this was appended since the last turn, only the end of it is read.
const MOST_BEHIND: u64 = 256 << 20;
/// How much of the end is read then.
const NEWEST: u64 = 32 << 20;
/// How much of a file to read for its header.
const LONGEST_HEADER: u64 = 1 << 20;
/// Frames to skip per turn: each costs one small read.
const MOST_SKIPPED: usize = 1 << 14;
/// A turn that may read less than this could not get past a frame.
pub(super) const LEAST_TURN: u64 = (LONGEST_PAYLOAD + FRAME_HEAD) as u64;

/// A recording that is followed.
#[derive(Debug)]
pub(super) struct Tail {
    /// The process's descriptor, as a path.
    path: PathBuf,
    /// Whether to skip the part of the file that was there before it was found.
    is_old: bool,
    open: Option<Open>,
    /// Events up to this time were read from an earlier file of the same process.
    read_until_ns: u64,
    newest_ns: u64,
    /// Failed allocations that were read and not yet taken.
    failures: u64,
}

/// The open file, and how far it was read.
#[derive(Debug)]
struct Open {
    file: Arc<File>,
    identity: (u64, u64),
    /// The PID in the header.
    pid: u32,
    length: u64,
    /// Where the next frame to read starts; earlier ones are skipped.
    skip_until: u64,
    reader: Option<Reader<Window>>,
}

/// What a look at the file has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Measure {
    /// The recorded process.
    pub(super) pid: u32,
    /// Whether the file has changed since the last look.
    pub(super) has_grown: bool,
    /// Bytes to read.
    pub(super) unread: u64,
}

impl Tail {
    /// A recording to follow. If `is_old`, its present content does not count.
    pub(super) fn new(path: PathBuf, is_old: bool) -> Self {
        Self { path, is_old, open: None, read_until_ns: 0, newest_ns: 0, failures: 0 }
    }

    /// Looks at the file's length. `None` if it is not a recording or cannot be read.
    pub(super) fn measure(&mut self) -> Option<Measure> {
        let now = fs::metadata(&self.path).ok().map(|found| (found.dev(), found.ino()));
        // A recording of bounded size is rewritten under another name and renamed.
        let is_replaced = self.open.as_ref().is_some_and(|open| now.is_some_and(|now| now != open.identity));
        if self.open.is_none() || is_replaced {
            let file = open_recording(&self.path)?;
            let found = file.metadata().ok()?;
            let skip_until = if self.is_old { found.len() } else { 0 };
            self.read_until_ns = self.newest_ns;
            let (identity, file) = ((found.dev(), found.ino()), Arc::new(file));
            let header = Window { file: Arc::clone(&file), at: 0, left: LONGEST_HEADER };
            let reader = Reader::new(header).ok()?;
            self.is_old = false;
            let pid = reader.header().pid;
            self.open = Some(Open { file, identity, pid, length: 0, skip_until, reader: Some(reader) });
        }
        let open = self.open.as_mut()?;
        let length = open.file.metadata().ok()?.len();
        let has_grown = length != open.length;
        open.length = length;
        let done = open.reader.as_ref().map_or(0, Reader::complete);
        if length.saturating_sub(done) > MOST_BEHIND {
            open.skip_until = open.skip_until.max(length - NEWEST);
        }
        let unread = length.saturating_sub(done.max(open.skip_until));
        Some(Measure { pid: open.pid, has_grown, unread })
    }

    /// Reads up to this many bytes. Gives up the rest of a frame when time is over.
    pub(super) fn read(&mut self, most: u64, ends: Instant) {
        let (read_until, mut newest) = (self.read_until_ns, self.newest_ns);
        let Some(open) = &mut self.open else { return };
        let Some(mut reader) = open.next_reader(most, ends) else { return };
        while Instant::now() < ends
            && let Ok(Some(frame)) = reader.next_frame()
        {
            if let Frame::Records(records) = frame {
                self.failures += failures(records, read_until, &mut newest, ends);
            }
        }
        self.newest_ns = newest;
        open.reader = Some(reader);
    }

    /// The failed allocations since the last call.
    pub(super) fn take_failures(&mut self) -> u64 {
        std::mem::take(&mut self.failures)
    }

    /// The open file.
    pub(super) fn file(&self) -> Option<File> {
        self.open.as_ref()?.file.try_clone().ok()
    }
}

impl Open {
    fn window(&self, at: u64, most: u64) -> Window {
        Window { file: Arc::clone(&self.file), at, left: most.min(self.length.saturating_sub(at)) }
    }

    /// A reader of the next frames, after those that are skipped.
    fn next_reader(&mut self, most: u64, ends: Instant) -> Option<Reader<Window>> {
        let reader = self.reader.take()?;
        let at = self.skip(reader.complete(), ends);
        let window = self.window(at, if at < self.skip_until { 0 } else { most });
        Some(reader.resume(window, at))
    }

    /// Walks over the frames before `skip_until` without reading their content. Returns where it stopped.
    fn skip(&self, mut at: u64, ends: Instant) -> u64 {
        for _ in 0..MOST_SKIPPED {
            let mut head = [0; FRAME_HEAD];
            if at >= self.skip_until
                || Instant::now() >= ends
                || self.file.read_exact_at(&mut head, at).is_err()
            {
                break;
            }
            let [length @ .., _, _, _, _, _] = head;
            let next = at + FRAME_HEAD as u64 + u64::from(u32::from_le_bytes(length));
            if next > self.length {
                break;
            }
            at = next;
        }
        at
    }
}

/// Counts the failed allocations of a frame that are newer than `read_until`.
fn failures(records: Records<'_>, read_until: u64, newest: &mut u64, ends: Instant) -> u64 {
    let mut count = 0;
    for (number, record) in records.map_while(Result::ok).enumerate() {
        if number % RECORDS_PER_LOOK == RECORDS_PER_LOOK - 1 && Instant::now() >= ends {
            break;
        }
        let Record::Event(event) = record else { continue };
        if event.time_ns <= read_until {
            continue;
        }
        *newest = event.time_ns.max(*newest);
        let is_allocation =
            is_taking(&event) || matches!(event.kind, EventKind::PinnedAlloc | EventKind::HostRegister);
        count += u64::from(event.result == OUT_OF_MEMORY && is_allocation);
    }
    count
}

/// A part of a file. It keeps its own position, because the descriptor's is shared.
#[derive(Debug)]
struct Window {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Window {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::path::Path;
    use std::time::Duration;

    use makeroom_core::{Address, Bytes};
    use makeroom_trace::room::{Encoder, Event, Header, ThreadNumber, beginning, seal};

    use super::*;

    /// A frame with these results of allocations, and the time of the first one.
    fn frame(results: &[u32], from_ns: u64) -> Vec<u8> {
        let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
        for (number, &result) in results.iter().enumerate() {
            let time_ns = from_ns + number as u64;
            let (address, size) = (Address(512), Bytes::new(512));
            encoder.record(&Record::Event(Event { time_ns, address, size, result, ..Event::default() }));
        }
        let mut bytes = Vec::new();
        assert!(seal(encoder.bytes(), &mut bytes));
        bytes
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("makeroom-tail-{name}-{}.room", std::process::id()))
    }

    fn create(path: &Path, frames: &[u8]) {
        let mut file = beginning(&Header { pid: 7, ..Header::default() });
        file.extend(frames);
        fs::write(path, file).unwrap();
    }

    fn append(path: &Path, bytes: &[u8]) {
        OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
    }

    fn turn(tail: &mut Tail) -> u64 {
        tail.measure().unwrap();
        tail.read(LEAST_TURN, Instant::now() + Duration::from_secs(60));
        tail.take_failures()
    }

    #[test]
    fn counts_appended_failures_once_even_if_a_frame_arrives_in_pieces() {
        let path = path("pieces");
        create(&path, &frame(&[0, 2, 2], 1));
        let mut tail = Tail::new(path.clone(), false);
        assert_eq!(turn(&mut tail), 2);
        assert_eq!(tail.measure(), Some(Measure { pid: 7, has_grown: false, unread: 0 }));
        assert_eq!(turn(&mut tail), 0);
        let next = frame(&[2, 0], 10);
        append(&path, &next[..5]);
        assert_eq!(turn(&mut tail), 0, "a partial frame");
        append(&path, &next[5..]);
        assert!(tail.measure().unwrap().has_grown);
        assert_eq!(turn(&mut tail), 1);
        fs::remove_file(&path).unwrap();
        assert!(tail.file().is_some() && tail.measure().is_some(), "an open file outlives its name");
    }

    #[test]
    fn old_content_does_not_count_and_new_content_does() {
        let path = path("old");
        create(&path, &frame(&[2; 5], 1));
        let mut tail = Tail::new(path.clone(), true);
        assert_eq!(tail.measure().unwrap().unread, 0);
        assert_eq!(turn(&mut tail), 0);
        append(&path, &frame(&[2, 2], 10));
        assert_eq!(turn(&mut tail), 2);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_rewritten_recording_counts_only_newer_failures() {
        let (path, other) = (path("ring"), path("ring-next"));
        create(&path, &frame(&[2, 2], 1));
        let mut tail = Tail::new(path.clone(), false);
        assert_eq!(turn(&mut tail), 2);
        create(&other, &[frame(&[2], 2), frame(&[2], 5)].concat());
        fs::rename(&other, &path).unwrap();
        assert_eq!(turn(&mut tail), 1);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn other_files_and_damaged_ones_are_not_followed() {
        let path = path("other");
        fs::write(&path, "text that is not a recording").unwrap();
        assert_eq!(Tail::new(path.clone(), false).measure(), None);
        create(&path, &[frame(&[2], 1), vec![0xff; 4096]].concat());
        let mut tail = Tail::new(path.clone(), false);
        assert_eq!((turn(&mut tail), turn(&mut tail)), (1, 0));
        fs::remove_file(&path).unwrap();
        assert_eq!(Tail::new(path, false).measure(), None);
    }
}
