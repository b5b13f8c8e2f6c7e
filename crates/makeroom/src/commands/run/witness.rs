//! A helper process that detects whether a signal was sent to the whole process group.
//!
//! `kill PID` and `kill -- -PGID` look the same to this command, but the program receives only the second one directly.
//! A second process of this program therefore waits in the same group and catches all signals. When a signal arrives,
//! this command queries whether the witness has received it too. Pending signals are delivered before the witness
//! executes its next instruction, so its reply is complete once the kernel has finished sending.
//!
//! It has a different name than this command, in `comm` and in its command line, because `killall makeroom` is meant
//! for the program. It exits when its socket is closed, which the kernel does however this command ends.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGCHLD, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSTOP};

use crate::signals::{LAST_SIGNAL, not_ignored};

/// The command line of the process.
pub(crate) const NAME: &str = "signal-witness";
/// Timeout for a reply: the process may be stopped, or the machine busy.
const TIMEOUT: Duration = Duration::from_secs(10);

/// This command's end.
pub(crate) struct Witness {
    process: Child,
    socket: Option<UnixStream>,
}

impl Witness {
    /// Starts the process and waits until it catches signals: one that the group receives before that would look as if
    /// this command alone had received it. Returns `None` if that is not possible.
    pub(crate) fn start() -> Option<Self> {
        let (own, its) = UnixStream::pair().ok()?;
        own.set_read_timeout(Some(TIMEOUT)).ok()?;
        let process = Command::new("/proc/self/exe")
            .arg0(NAME)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(its)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut witness = Self { process, socket: Some(own) };
        witness.socket.as_mut()?.read_exact(&mut [0]).ok()?;
        Some(witness)
    }

    /// Whether the process has received this signal since the last query. `None` if it does not reply.
    pub(crate) fn has_received(&mut self, signal: i32) -> Option<bool> {
        let socket = self.socket.as_mut()?;
        socket.write_all(&[u8::try_from(signal).ok()?]).ok()?;
        let mut answer = [0];
        socket.read_exact(&mut answer).ok()?;
        Some(answer == [1])
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // Closing the socket would also end it, unless it is stopped.
        self.socket = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The process itself: reports that it catches signals, then replies until its socket, which is its standard input, is closed.
pub(crate) fn run() -> io::Result<()> {
    let received: [Arc<AtomicBool>; LAST_SIGNAL as usize + 1] = std::array::from_fn(|_| Arc::default());
    let uncaught = [SIGKILL, SIGSTOP, SIGCHLD, SIGFPE, SIGILL, SIGSEGV, 32, 33];
    let all: Vec<i32> = (1..=LAST_SIGNAL).filter(|signal| !uncaught.contains(signal)).collect();
    for signal in not_ignored(&all) {
        if let Some(flag) = received.get(signal as usize) {
            signal_hook::flag::register(signal, Arc::clone(flag))?;
        }
    }
    let stdin = io::stdin().lock();
    let mut socket = UnixStream::from(rustix::io::dup(&stdin)?);
    socket.write_all(&[0])?;
    let mut question = [0];
    while socket.read(&mut question)? == 1 {
        let answer =
            received.get(usize::from(question[0])).is_some_and(|flag| flag.swap(false, Ordering::Relaxed));
        socket.write_all(&[u8::from(answer)])?;
    }
    Ok(())
}
