//! Forwards signals to the program, each exactly once.
//!
//! A handler writes every signal it receives to a pipe, with its origin; a thread reads them and decides. The program
//! shares this command's process group, so it also receives signals to the group (Ctrl-C, `kill -- -PGID`, `timeout`).
//! Signals that the kernel sends for the terminal go to the group; the witness detects the others (see [`Witness`]).
//!
//! Signals sent by this process or by the program, and faults of this process, are not forwarded either.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{getpid, getsid};
use signal_hook::consts::{
    SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGQUIT, SIGSEGV, SIGSTOP, SIGSYS,
    SIGTERM, SIGTRAP, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH, SIGXCPU,
};

use super::witness::Witness;
use crate::signals::{LAST_SIGNAL, restore_inherited};

/// Signals that the C library reserves for its threads.
const OF_C_LIBRARY: [i32; 2] = [32, 33];
/// Signals that a terminal sends to a process group.
const OF_TERMINAL: [i32; 6] = [SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH];
/// Signals that concern only this process if the kernel sends them.
const OF_THIS_PROCESS: [i32; 7] = [SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGXCPU];
/// Signals that end this command if they arrive after the program has ended.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// The kernel signals a group one process at a time; after this delay the witness has its signal too.
const SETTLE: Duration = Duration::from_millis(2);

/// A received signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Received {
    /// 0 if this command sent it: the program has ended.
    signal: i32,
    /// `si_code`: positive if the kernel sent it.
    code: i32,
    /// PID of the sender, if a process sent it.
    sender: i32,
    /// The value passed to `sigqueue`.
    value: usize,
    /// Whether the program was known to have ended when the signal arrived.
    is_late: bool,
}

impl Received {
    const SIZE: usize = 21;
    const OVER: Self = Self { signal: 0, code: 0, sender: 0, value: 0, is_late: false };

    fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&self.signal.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.code.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.sender.to_ne_bytes());
        bytes[12..20].copy_from_slice(&self.value.to_ne_bytes());
        bytes[20] = self.is_late.into();
        bytes
    }

    fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let number = |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut value = [0; size_of::<usize>()];
        value.copy_from_slice(&bytes[12..20]);
        let value = usize::from_ne_bytes(value);
        Self { signal: number(0), code: number(4), sender: number(8), value, is_late: bytes[20] != 0 }
    }
}

/// Receives signals.
pub(crate) struct Receiver {
    signals: Vec<i32>,
    reader: PipeReader,
    /// One descriptor for all handlers: the limit on descriptors may be low.
    writer: Arc<PipeWriter>,
    /// Whether this command knows that the program has ended.
    is_over: Arc<AtomicBool>,
}

impl Receiver {
    /// Installs the handlers.
    pub(crate) fn new() -> io::Result<Self> {
        let (reader, writer) = pipe()?;
        // A handler must not block; the pipe holds thousands of signals.
        fcntl_setfl(&writer, OFlags::NONBLOCK)?;
        let writer = Arc::new(writer);
        let uncaught = [SIGKILL, SIGSTOP, SIGCHLD, OF_C_LIBRARY[0], OF_C_LIBRARY[1]];
        // Including signals that are ignored here: the program may handle them, and otherwise ignores them too.
        let signals: Vec<i32> = (1..=LAST_SIGNAL).filter(|signal| !uncaught.contains(signal)).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        for &signal in &signals {
            let (to_thread, is_over) = (Arc::clone(&writer), Arc::clone(&is_over));
            let action = move |info: &libc::siginfo_t| {
                // SAFETY: for every kind of signal, these fields are within the structure; they are used only if the
                // code indicates that they were set.
                let (sender, value) = unsafe { (info.si_pid(), info.si_value().sival_ptr as usize) };
                // The thread looks at the signal later, when the program may have ended. A signal that was sent before
                // that may arrive after it, but before this command knows: the kernel delivers it to the main thread
                // before the wait there returns.
                let is_late = is_over.load(Ordering::Relaxed);
                let received = Received { signal, code: info.si_code, sender, value, is_late };
                let _ = rustix::io::write(&*to_thread, &received.to_bytes());
            };
            // SAFETY: the action only reads its argument and an atomic, and makes one nonblocking system call. A fault
            // that returns from it happens again, then with the default action, which Rust's own handler has restored by
            // then.
            unsafe { signal_hook_registry::register_unchecked(signal, action) }?;
        }
        Ok(Self { signals, reader, writer, is_over })
    }

    /// Forwards signals to this child.
    pub(crate) fn forward_to(self, child: i32, witness: Option<Witness>) -> Forwarder {
        let mut reader = self.reader;
        let mut origin = Origin { child, witness };
        let thread = std::thread::spawn(move || {
            let mut bytes = [0; Received::SIZE];
            let mut late = None;
            while reader.read_exact(&mut bytes).is_ok() {
                match Received::from_bytes(bytes) {
                    Received::OVER => break,
                    received if !origin.concerns_child(received) => {}
                    // The program had ended, so the signal is for this command.
                    received if received.is_late => {
                        late = late.or(Some(received.signal).filter(|signal| ENDING.contains(signal)));
                    }
                    received => pass_on(child, received),
                }
            }
            late
        });
        Forwarder { signals: self.signals, writer: self.writer, is_over: self.is_over, thread: Some(thread) }
    }

    /// Stops handling signals: there is no program.
    pub(crate) fn give_up(self) {
        self.signals.iter().copied().for_each(restore_inherited);
    }
}

/// Forwards signals until it is dropped.
pub(crate) struct Forwarder {
    signals: Vec<i32>,
    writer: Arc<PipeWriter>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Option<i32>>>,
}

impl Forwarder {
    /// Restores the previous signal actions and returns the first signal that came after the program's end to end this
    /// command, if one did. Called after the program has ended and before it is reaped, so that its PID is not reused yet.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.is_over.store(true, Ordering::Relaxed);
        self.signals.iter().copied().for_each(restore_inherited);
        let is_told = (&*self.writer).write_all(&Received::OVER.to_bytes()).is_ok();
        // A panic in the thread does not affect the program.
        self.thread.take().filter(|_| is_told)?.join().ok().flatten()
    }
}

struct Origin {
    child: i32,
    witness: Option<Witness>,
}

impl Origin {
    /// Whether to forward the signal to the program.
    fn concerns_child(&mut self, received: Received) -> bool {
        std::thread::sleep(SETTLE);
        // Query every time: signals received earlier must not count for a later one.
        let reached_group = self.witness.as_mut().and_then(|witness| witness.has_received(received.signal));
        if reached_group.is_none() {
            self.witness = None;
        }
        let is_from_kernel = received.code > 0;
        let is_own = is_from_kernel && OF_THIS_PROCESS.contains(&received.signal);
        let sender = if is_from_kernel { 0 } else { received.sender };
        let is_back = sender == getpid().as_raw_nonzero().get() || sender == self.child;
        // The witness does not decide about the terminal's signals: SIGCONT discards a SIGTSTP that is still pending for it.
        let is_of_terminal = is_from_kernel && is_of_terminal(received.signal);
        !is_own && !is_back && !is_of_terminal && reached_group != Some(true)
    }
}

/// Whether a terminal sends this signal to a whole group. Only the session leader receives SIGHUP when the terminal is
/// lost.
fn is_of_terminal(signal: i32) -> bool {
    let is_leader = || getsid(None).is_ok_and(|session| session == getpid());
    OF_TERMINAL.contains(&signal) || [SIGHUP, SIGCONT].contains(&signal) && !is_leader()
}

fn pass_on(child: i32, received: Received) {
    // A program that is already gone needs no signal.
    // SAFETY: neither call accesses memory of this process; the child is not reaped before the thread ends.
    unsafe {
        if received.code == libc::SI_QUEUE {
            let value = libc::sigval { sival_ptr: received.value as *mut libc::c_void };
            libc::sigqueue(child, received.signal, value);
        } else {
            libc::kill(child, received.signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_survive_the_pipe() {
        let received = Received { signal: 64, code: -1, sender: 4711, value: usize::MAX - 1, is_late: true };
        assert_eq!(Received::from_bytes(received.to_bytes()), received);
    }

    #[test]
    fn a_terminals_signal_is_not_repeated() {
        let mut origin = Origin { child: 4711, witness: None };
        let mut concerns = |signal, code, sender| {
            origin.concerns_child(Received { signal, code, sender, value: 0, is_late: false })
        };
        let (kernel, user) = (0x80, 0);
        assert!(!concerns(SIGINT, kernel, 0) && !concerns(SIGWINCH, kernel, 0));
        assert!(concerns(SIGINT, user, 1) && concerns(SIGWINCH, user, 1));
        // An alarm set before this command started is meant for the program.
        assert!(concerns(libc::SIGALRM, kernel, 0));
        assert!(!concerns(SIGXCPU, kernel, 0) && concerns(SIGXCPU, user, 1));
        assert!(!concerns(SIGSEGV, 1, 0) && concerns(SIGSEGV, user, 1));
        assert!(!concerns(libc::SIGUSR1, user, 4711));
        assert!(!concerns(libc::SIGPIPE, user, getpid().as_raw_nonzero().get()));
    }
}
