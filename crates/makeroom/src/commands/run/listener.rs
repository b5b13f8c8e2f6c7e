//! Receives reports from the recorded processes: the files they write, failed allocations, notices, write errors, and
//! their current memory for the status line.
//!
//! Any process that knows the socket can send anything. Messages are therefore printed without control characters, and
//! a file they name is read only if it is a recording of this run (`summary`).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use makeroom_core::Bytes;
use makeroom_explain::Cause;
use makeroom_report::{EarlyStop, further_refusals_text};
use makeroom_trace::protocol::{LONGEST_MESSAGE, Message};

use super::status::{self, Status};
use super::{folders, summary};
use crate::commands::new_file;
use crate::output;

/// Maximum number of failed allocations printed per run: a program that searches for the largest batch has many.
const MOST_REFUSALS: usize = 3;
/// Maximum number of notices printed per run.
const MOST_NOTICES: usize = 20;
/// Maximum number of recordings per run.
const MOST_RECORDINGS: usize = 4096;
/// Wakes the listener: there may be no more messages.
const OVER: &[u8] = b"over";
/// Prefix of socket names.
const SOCKET: &str = "socket-";
/// How many directory entries to check for stale sockets.
const MOST_ENTRIES: usize = 10_000;

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
        let _ = UnixDatagram::unbound().and_then(|socket| socket.send_to(OVER, &self.path));
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
        let Some(datagram) = buffer.get(..length) else { continue };
        // All messages sent before the program ended have been read by now.
        if datagram == OVER && is_over.load(Ordering::Acquire) {
            return heard;
        }
        let Some((process, message)) = Message::parse(datagram) else { continue };
        match message {
            Message::Recording { file } => heard.begin(process, path_of(file)),
            Message::Unrecorded(reason) if heard.unrecorded.len() < MOST_NOTICES => {
                heard.unrecorded.push((process, reason));
            }
            Message::Unrecorded(_) => {}
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
                    let file = path_of(file);
                    let recording = Some((file.as_path(), run)).filter(|_| is_recorded);
                    let (text, explained) = summary::refusal(bytes, device, recording, refusals == 1);
                    output::remark(&text);
                    if let Some(known) = heard.of(process) {
                        known.explained = known.explained.or(explained);
                    }
                } else if refusals == MOST_REFUSALS + 1 {
                    status.clear();
                    output::remark(&further_refusals_text());
                }
            }
            Message::Status(memory) => status.report(process, memory),
        }
    }
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

/// Whether to continue after this error: a timeout or a signal.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

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
