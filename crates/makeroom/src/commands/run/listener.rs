//! Receives reports from the recorded processes: the files they write, failed allocations, notices, write errors, and
//! their current memory for the status line.
//!
//! Any process that knows the socket can send anything. Messages are therefore printed without control characters, and
//! a file they name is read only if it is a recording of this run (`summary`).

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use makeroom_core::Bytes;
use makeroom_explain::Cause;
use makeroom_report::{EarlyStop, further_refusals_text};

use super::status::{self, Figures, Status};
use super::{folders, summary};
use crate::commands::new_file;
use crate::output;

/// A message contains a few numbers and a path.
const LONGEST_MESSAGE: usize = 8 << 10;
/// Maximum number of failed allocations printed per run: a program that searches for the largest batch has many.
const MOST_REFUSALS: usize = 3;
/// Maximum number of notices printed per run.
const MOST_NOTICES: usize = 20;
/// Maximum number of recordings per run.
const MOST_RECORDINGS: usize = 4096;
/// Prefix of socket names.
const SOCKET: &str = "socket-";
/// How many directory entries to check for stale sockets.
const MOST_ENTRIES: usize = 10_000;

/// A report from a process.
#[derive(Debug, PartialEq, Eq)]
enum Message {
    /// It writes this file.
    Recording(PathBuf),
    /// An allocation of this size failed on this device, or on the host.
    Refused { bytes: Bytes, device: Option<u32>, file: PathBuf },
    /// It could not write a file, for this reason.
    Unrecorded(String),
    /// Its recording stopped early, at this point and for this reason.
    Stopped { after: Duration, reason: String },
    /// A notice for the user.
    Notice(String),
    /// It is not recorded, because it contains the runtime of this sanitizer.
    Sanitized(String),
    /// Its current memory.
    Status(Figures),
    /// Wakes the listener: there may be no more messages.
    Over,
}

/// A file that a process wrote.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) process: u32,
    pub(crate) file: PathBuf,
    /// The process's report that it could not write the whole file.
    pub(crate) stop: Option<EarlyStop>,
    /// The cause of its first failure, if that was explained on the screen.
    pub(crate) explained: Option<Cause>,
    /// The allocations that failed before that, which the file should contain.
    pub(crate) refused: u64,
    /// The first of them, and its device; `None` is the host.
    pub(crate) first_refused: Option<(Bytes, Option<u32>)>,
}

/// All reports of a run.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The files that were written, by name.
    pub(crate) recordings: Vec<Recorded>,
    /// Processes that could not write a file, and why.
    pub(crate) unrecorded: Vec<(u32, String)>,
    /// The sanitizer of a process that is not recorded because of it.
    pub(crate) sanitizer: Option<String>,
}

impl Heard {
    fn begin(&mut self, process: u32, file: PathBuf) {
        let is_known = self.of(process).is_some_and(|known| known.file == file);
        if !is_known && self.recordings.len() < MOST_RECORDINGS {
            let (stop, explained, first_refused) = (None, None, None);
            self.recordings.push(Recorded { process, file, stop, explained, refused: 0, first_refused });
        }
    }

    /// The current recording of a process: after an `exec` it starts a second one.
    fn of(&mut self, process: u32) -> Option<&mut Recorded> {
        self.recordings.iter_mut().rev().find(|known| known.process == process)
    }

    /// Records a failed allocation. Returns whether the recording should contain it.
    fn refuse(&mut self, process: u32, bytes: Bytes, device: Option<u32>) -> bool {
        let Some(known) = self.of(process) else { return true };
        let (refused, first) = match &mut known.stop {
            Some(stop) => (&mut stop.refused, &mut stop.first_refused),
            None => (&mut known.refused, &mut known.first_refused),
        };
        *refused += 1;
        first.get_or_insert((bytes, device));
        known.stop.is_none()
    }
}

/// The listening end. Dropping it removes the socket.
pub(crate) struct Listener {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Heard>>,
}

impl Listener {
    /// Starts listening for the processes of a run.
    pub(crate) fn start(run: &str, mut status: Status) -> io::Result<Self> {
        let (path, socket) = folders::first(|folder| {
            let path = folder.join(format!("{SOCKET}{}", new_file::random()));
            folders::short(&path)?;
            remove_dead(folder);
            Ok((path.clone(), UnixDatagram::bind(&path)?))
        })?;
        socket.set_read_timeout(Some(status::INTERVAL))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (run, ends) = (run.to_owned(), Arc::clone(&is_over));
        let listen = move || {
            let mut heard = listen(&socket, &run, &mut status, &ends);
            status.clear();
            heard.recordings.sort_by(|one, other| one.file.cmp(&other.file));
            heard
        };
        Ok(Self { path, is_over, thread: Some(std::thread::spawn(listen)) })
    }

    /// The path to report to.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Stops listening and returns the reports.
    pub(crate) fn finish(mut self) -> Heard {
        self.is_over.store(true, Ordering::Release);
        // If this fails, the listener ends by itself a moment later.
        let _ = UnixDatagram::unbound().and_then(|socket| socket.send_to(b"over", &self.path));
        let thread = self.thread.take();
        thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A socket that cannot be removed is in the user's private temporary directory.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes stale sockets, which killed runs leave behind.
fn remove_dead(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_ENTRIES);
    for path in entries.map(|entry| entry.path()) {
        let is_socket = path.file_name().is_some_and(|name| name.as_bytes().starts_with(SOCKET.as_bytes()));
        let is_dead = || {
            let tried = UnixDatagram::unbound().and_then(|socket| socket.connect(&path));
            tried.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if is_socket && is_dead() {
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn listen(socket: &UnixDatagram, run: &str, status: &mut Status, is_over: &AtomicBool) -> Heard {
    let mut heard = Heard::default();
    let mut refusals = 0;
    let mut notices = 0;
    let mut buffer = vec![0; LONGEST_MESSAGE];
    let mut drawn = Instant::now();
    loop {
        if drawn.elapsed() >= status::INTERVAL {
            status.draw();
            drawn = Instant::now();
        }
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if is_passing(&error) && !is_over.load(Ordering::Acquire) => continue,
            Err(_) => return heard,
        };
        let Some((process, message)) = buffer.get(..length).and_then(parse) else { continue };
        match message {
            // All messages sent before the program ended have been read by now.
            Message::Over if is_over.load(Ordering::Acquire) => return heard,
            Message::Recording(file) => heard.begin(process, file),
            Message::Unrecorded(reason) if heard.unrecorded.len() < MOST_NOTICES => {
                heard.unrecorded.push((process, reason));
            }
            Message::Over | Message::Unrecorded(_) => {}
            Message::Stopped { after, reason } => {
                if let Some(known) = heard.of(process) {
                    known.stop.get_or_insert(EarlyStop { after, reason, ..EarlyStop::default() });
                }
            }
            Message::Sanitized(name) => heard.sanitizer = Some(name),
            Message::Notice(text) => {
                notices += 1;
                if notices <= MOST_NOTICES {
                    status.clear();
                    output::remark(&format!("makeroom: {text}\n"));
                }
            }
            Message::Refused { bytes, device, file } => {
                refusals += 1;
                let is_recorded = heard.refuse(process, bytes, device);
                if refusals <= MOST_REFUSALS {
                    status.clear();
                    let recording = Some((file.as_path(), run)).filter(|_| is_recorded && refusals == 1);
                    let (text, explained) = summary::refusal(bytes, device, recording);
                    output::remark(&text);
                    if let Some(known) = heard.of(process) {
                        known.explained = known.explained.or(explained);
                    }
                } else if refusals == MOST_REFUSALS + 1 {
                    status.clear();
                    output::remark(&further_refusals_text());
                }
            }
            Message::Status(figures) => status.report(process, figures),
        }
    }
}

/// Whether to continue after this error: a timeout or a signal.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// A message and the PID of its sender; 0 for this command itself.
fn parse(message: &[u8]) -> Option<(u32, Message)> {
    if message == b"over" {
        return Some((0, Message::Over));
    }
    let (kind, rest) = next_word(message)?;
    let (process, rest) = next_word(rest)?;
    let process = number(process)?;
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let message = match kind {
        b"status" => {
            let mut words = rest.split(|&byte| byte == b' ').map(number);
            let mut next = || words.next().flatten();
            Message::Status(Figures {
                device: next()?,
                pinned: next()?,
                tensors: next()?,
                allocations: next()?,
            })
        }
        b"unrecorded" => Message::Unrecorded(text(rest)),
        b"sanitized" => Message::Sanitized(text(rest)),
        b"notice" => Message::Notice(text(rest)),
        b"recording" => Message::Recording(path(rest)),
        b"stopped" => {
            let (after, reason) = next_word(rest)?;
            Message::Stopped { after: Duration::from_millis(number(after)?), reason: text(reason) }
        }
        b"refused" => {
            let (bytes, rest) = next_word(rest)?;
            let (device, file) = next_word(rest)?;
            Message::Refused {
                bytes: Bytes::new(number(bytes)?),
                device: if device == b"host" { None } else { Some(number(device)?) },
                file: path(file),
            }
        }
        _ => return None,
    };
    Some((process, message))
}

/// Splits at the next space.
fn next_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = text.iter().position(|&byte| byte == b' ')?;
    Some((text.get(..space)?, text.get(space + 1..)?))
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_and_nonsense_is_not() {
        let of_42 = |message| Some((42, message));
        assert_eq!(
            parse(b"recording 42 /tmp/a b.room"),
            of_42(Message::Recording(PathBuf::from("/tmp/a b.room")))
        );
        assert_eq!(
            parse(b"recording 42 a\xff.room"),
            of_42(Message::Recording(PathBuf::from(std::ffi::OsStr::from_bytes(b"a\xff.room"))))
        );
        let refused = |device| Message::Refused { bytes: Bytes::new(4096), device, file: "x.room".into() };
        assert_eq!(parse(b"refused 42 4096 1 x.room"), of_42(refused(Some(1))));
        assert_eq!(parse(b"refused 42 4096 host x.room"), of_42(refused(None)));
        assert_eq!(
            parse(b"unrecorded 42 /tmp/x.room: No space left"),
            of_42(Message::Unrecorded("/tmp/x.room: No space left".to_owned()))
        );
        let (after, reason) = (Duration::from_millis(1200), "No space left".to_owned());
        assert_eq!(parse(b"stopped 42 1200 No space left"), of_42(Message::Stopped { after, reason }));
        assert_eq!(parse(b"notice 42 a b"), of_42(Message::Notice("a b".to_owned())));
        assert_eq!(parse(b"refused 42 many 1 x.room"), None);
        let figures = Figures { device: 1, pinned: 2, tensors: 3, allocations: 4 };
        assert_eq!(parse(b"status 42 1 2 3 4 x.room"), of_42(Message::Status(figures)));
        for nonsense in [&b"status 42 1 2 3"[..], b"\xff", b"", b"over 1", b"notice", b"stopped 42 x y"] {
            assert_eq!(parse(nonsense), None);
        }
    }

    #[test]
    fn refusals_after_a_stop_are_counted_for_the_file_that_lacks_them() {
        let mut heard = Heard::default();
        heard.begin(1, "one.room".into());
        heard.begin(1, "one.room".into());
        assert!(heard.refuse(1, Bytes::mib(1), None));
        heard.of(1).unwrap().stop = Some(EarlyStop::default());
        assert!(!heard.refuse(1, Bytes::mib(2), Some(0)) && !heard.refuse(1, Bytes::mib(3), Some(0)));
        heard.begin(1, "after-exec.room".into());
        assert!(heard.refuse(1, Bytes::mib(4), Some(0)));
        let stop = heard.recordings[0].stop.as_ref().unwrap();
        assert_eq!((stop.refused, stop.first_refused), (2, Some((Bytes::mib(2), Some(0)))));
        assert_eq!(heard.recordings.len(), 2);
    }
}
