//! Hears what the recorded processes report: which files they write, what was refused, and what they hold, which the
//! status line shows.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Instant;

use makeroom_core::Bytes;
use makeroom_report::further_refusals_text;

use super::status::{self, Figures, Status};
use super::{library, summary};
use crate::output;

/// A message is a few numbers and a path.
const LONGEST_MESSAGE: usize = 8 << 10;
/// Refusals of one run that are printed; a program that probes for the largest batch makes many.
const MOST_REFUSALS: usize = 3;

/// What a process reports.
#[derive(Debug, PartialEq, Eq)]
enum Message {
    /// It writes this file.
    Recording(PathBuf),
    /// It was refused so much on this device, or on the host.
    Refused { bytes: Bytes, device: Option<u32>, file: PathBuf },
    /// It could not write a file, for this reason.
    Unrecorded(String),
    /// The runtime of this sanitizer is in it, so that it is not recorded.
    Sanitized(String),
    /// It holds so much.
    Status { process: u32, figures: Figures },
    /// From this command itself: that was all.
    Over,
}

/// What was heard of a run.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The files that were written.
    pub(crate) recordings: BTreeSet<PathBuf>,
    /// Why a process could not write one.
    pub(crate) unrecorded: Option<String>,
    /// The sanitizer of a process that is not recorded for it.
    pub(crate) sanitizer: Option<String>,
}

/// The listening end. Its socket goes with it, whether the program was started or not.
pub(crate) struct Listener {
    path: PathBuf,
    thread: Option<JoinHandle<Heard>>,
}

impl Listener {
    /// Starts listening.
    pub(crate) fn start(mut status: Status) -> io::Result<Self> {
        let path = library::folder()?.join(format!("socket-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path)?;
        socket.set_read_timeout(Some(status::INTERVAL))?;
        let listen = move || {
            let heard = listen(&socket, &mut status);
            status.clear();
            heard
        };
        Ok(Self { path, thread: Some(std::thread::spawn(listen)) })
    }

    /// Where to report to.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Stops listening; gives what was heard.
    pub(crate) fn finish(mut self) -> Heard {
        let told = UnixDatagram::unbound().and_then(|socket| socket.send_to(b"over", &self.path));
        let thread = self.thread.take().filter(|_| told.is_ok());
        thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // What cannot be removed lies in the user's own folder for temporary files.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn listen(socket: &UnixDatagram, status: &mut Status) -> Heard {
    let mut heard = Heard::default();
    let mut refusals = 0;
    let mut buffer = vec![0; LONGEST_MESSAGE];
    let mut drawn = Instant::now();
    loop {
        if drawn.elapsed() >= status::INTERVAL {
            status.draw();
            drawn = Instant::now();
        }
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if is_passing(&error) => continue,
            Err(_) => return heard,
        };
        match buffer.get(..length).and_then(parse) {
            Some(Message::Over) => return heard,
            Some(Message::Recording(file)) => {
                heard.recordings.insert(file);
            }
            Some(Message::Unrecorded(reason)) => heard.unrecorded = Some(reason),
            Some(Message::Sanitized(name)) => heard.sanitizer = Some(name),
            Some(Message::Refused { bytes, device, file }) => {
                refusals += 1;
                if refusals <= MOST_REFUSALS {
                    status.clear();
                    output::remark(&summary::refusal(bytes, device, &file, refusals == 1));
                } else if refusals == MOST_REFUSALS + 1 {
                    status.clear();
                    output::remark(&further_refusals_text());
                }
            }
            Some(Message::Status { process, figures }) => status.report(process, figures),
            None => {}
        }
    }
}

/// Whether listening goes on: nobody said anything, or a signal came.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn parse(message: &[u8]) -> Option<Message> {
    let text = std::str::from_utf8(message).ok()?;
    if text == "over" {
        return Some(Message::Over);
    }
    let (kind, rest) = text.split_once(' ')?;
    let (process, rest) = rest.split_once(' ')?;
    match kind {
        "status" => {
            let mut numbers = rest.split(' ').map(|word| word.parse::<u64>().ok());
            let mut next = || numbers.next().flatten();
            let figures =
                Figures { device: next()?, pinned: next()?, tensors: next()?, allocations: next()? };
            Some(Message::Status { process: process.parse().ok()?, figures })
        }
        "unrecorded" => Some(Message::Unrecorded(rest.to_owned())),
        "sanitized" => Some(Message::Sanitized(rest.to_owned())),
        "recording" => Some(Message::Recording(PathBuf::from(rest))),
        "refused" => {
            let (bytes, rest) = rest.split_once(' ')?;
            let (device, file) = rest.split_once(' ')?;
            Some(Message::Refused {
                bytes: Bytes::new(bytes.parse().ok()?),
                device: if device == "host" { None } else { Some(device.parse().ok()?) },
                file: PathBuf::from(file),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_and_nonsense_is_not() {
        assert_eq!(
            parse(b"recording 42 /tmp/a b.room"),
            Some(Message::Recording(PathBuf::from("/tmp/a b.room")))
        );
        assert_eq!(
            parse(b"refused 42 4096 1 x.room"),
            Some(Message::Refused {
                bytes: Bytes::new(4096),
                device: Some(1),
                file: PathBuf::from("x.room")
            })
        );
        assert_eq!(
            parse(b"refused 42 4096 host x.room"),
            Some(Message::Refused { bytes: Bytes::new(4096), device: None, file: PathBuf::from("x.room") })
        );
        assert_eq!(
            parse(b"unrecorded 42 /tmp/x.room: No space left"),
            Some(Message::Unrecorded("/tmp/x.room: No space left".to_owned()))
        );
        assert_eq!(parse(b"refused 42 many 1 x.room"), None);
        let figures = Figures { device: 1, pinned: 2, tensors: 3, allocations: 4 };
        assert_eq!(parse(b"status 42 1 2 3 4 x.room"), Some(Message::Status { process: 42, figures }));
        assert_eq!(parse(b"status 42 1 2 3"), None);
        assert_eq!(parse(b"\xff"), None);
    }
}
