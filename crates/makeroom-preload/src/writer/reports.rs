//! Messages to `run` over its socket.
//!
//! The socket is connected once, when the recording begins, so it does not matter where the program moves later
//! (`chroot`, another namespace). A busy listener is not waited for: important messages are retried in the next turn,
//! and display updates are dropped. Without a listener nothing is queued.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use makeroom_trace::protocol::Message;

use crate::clock;
use crate::files::Guarded;
use crate::socket::socket_address;

/// Queued messages. A program that probes for its largest batch fails often: further failures are dropped.
const MOST_WAITING: usize = 64;
/// How long an exit waits for a busy listener.
const LONGEST_GOODBYE_NS: u64 = 100_000_000;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(2);

/// The connection to `run`.
#[derive(Debug)]
pub(crate) struct Reports {
    path: Option<Vec<u8>>,
    socket: Option<Guarded>,
    waiting: VecDeque<Vec<u8>>,
}

impl Reports {
    /// Connects to the listener, if there is one.
    pub(crate) fn new(path: Option<&[u8]>) -> Self {
        let mut reports = Self { path: path.map(<[u8]>::to_vec), socket: None, waiting: VecDeque::new() };
        reports.connect();
        reports
    }

    /// Whether `run` is listening.
    pub(crate) fn are_heard(&self) -> bool {
        self.path.is_some()
    }

    /// Sends an important message.
    pub(crate) fn send(&mut self, message: &Message) {
        if self.are_heard() && self.waiting.len() < MOST_WAITING {
            self.waiting.push_back(message.encode(std::process::id()));
        }
        self.deliver();
    }

    /// Sends a message that may be lost.
    pub(crate) fn mention(&mut self, message: &Message) {
        if self.waiting.is_empty() && self.are_heard() {
            let _ = self.try_send(&message.encode(std::process::id()));
        }
    }

    /// Sends queued messages until the listener is busy.
    pub(crate) fn deliver(&mut self) {
        while let Some(message) = self.waiting.pop_front() {
            match self.try_send(&message) {
                Ok(()) => {}
                Err(error) if is_busy(&error) => {
                    self.waiting.push_front(message);
                    return;
                }
                Err(_) => {
                    // The listener is gone for good.
                    (self.path, self.socket) = (None, None);
                    self.waiting.clear();
                }
            }
        }
    }

    /// Sends queued messages before the process ends, with a short timeout for a busy listener.
    pub(crate) fn deliver_all(&mut self) {
        let began = clock::monotonic_ns();
        self.deliver();
        while !self.waiting.is_empty() && clock::monotonic_ns().wrapping_sub(began) < LONGEST_GOODBYE_NS {
            std::thread::sleep(BETWEEN_ATTEMPTS);
            self.deliver();
        }
    }

    fn try_send(&mut self, message: &[u8]) -> io::Result<()> {
        // In a shared descriptor table the program may have closed it.
        if self.socket.as_ref().is_none_or(|socket| !socket.is_there()) {
            self.connect();
        }
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the message is valid for its length.
        let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), flags) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn connect(&mut self) {
        let connected = self.path.as_deref().and_then(connect);
        if let Some(gone) = std::mem::replace(&mut self.socket, connected) {
            // Not closed: its number may be the new socket's.
            std::mem::forget(gone);
        }
    }
}

fn connect(path: &[u8]) -> Option<Guarded> {
    let address = socket_address(path)?;
    let socket = Guarded::socket().ok()?;
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is valid for its length.
    let result = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
    (result == 0).then_some(socket)
}

/// Whether the listener may accept the message later.
fn is_busy(error: &io::Error) -> bool {
    let is_full = error.raw_os_error() == Some(libc::ENOBUFS);
    is_full || matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use makeroom_trace::protocol::LiveMemory;

    use super::*;

    fn listener(test: &str) -> (UnixDatagram, Vec<u8>) {
        let path = std::env::temp_dir().join(format!("makeroom-{test}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        (socket, path.into_os_string().into_encoded_bytes())
    }

    fn next(socket: &UnixDatagram) -> Message {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        let (process, message) = Message::parse(&buffer[..length]).unwrap();
        assert_eq!(process, std::process::id());
        message
    }

    #[test]
    fn a_busy_listener_hears_all_of_it_later() {
        let (socket, path) = listener("busy");
        let mut reports = Reports::new(Some(&path));
        std::fs::remove_file(std::path::Path::new(std::str::from_utf8(&path).unwrap())).unwrap();
        let notice = |number: u32| Message::Notice(number.to_string());
        let mut sent = 0;
        while reports.waiting.is_empty() {
            reports.send(&notice(sent));
            sent += 1;
        }
        reports.mention(&Message::Status(LiveMemory::default()));
        reports.send(&Message::Unrecorded("at last".to_owned()));
        for number in 0..sent {
            assert_eq!(next(&socket), notice(number));
            reports.deliver();
        }
        assert_eq!(next(&socket), Message::Unrecorded("at last".to_owned()));
    }

    #[test]
    fn nothing_is_kept_for_a_listener_that_is_gone() {
        let (socket, path) = listener("gone");
        let mut reports = Reports::new(Some(&path));
        drop(socket);
        reports.send(&Message::Notice(String::new()));
        assert!(!reports.are_heard() && reports.waiting.is_empty());
        assert!(!Reports::new(None).are_heard());
        std::fs::remove_file(std::path::Path::new(std::str::from_utf8(&path).unwrap())).unwrap();
    }
}
