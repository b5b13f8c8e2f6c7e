//! Runs the program as a child process: it owns the terminal, receives all signals, and stops and ends as if it were
//! run directly.

use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitCode, ExitStatus};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, waitid};
use signal_hook::consts::SIGCHLD;

use super::forward::{Forwarder, Receiver};
use super::status::Screen;
use super::witness::Witness;
use crate::signals::{die_of, pass_on_inherited, restore_default};

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It exited with this status.
    Exited(u8),
    /// This signal ended it.
    Killed(i32),
}

/// Runs the program to its end. The status line is hidden while the program is stopped, and removed when it has ended.
pub(crate) fn run(command: &mut Command, screen: &Screen) -> io::Result<End> {
    // If SIGCHLD is ignored, the kernel reaps children itself and their status is lost.
    restore_default(SIGCHLD);
    // Without free descriptors, the program runs all the same; it then gets only the signals to the process group.
    let receiver = Receiver::new().ok();
    let witness = receiver.as_ref().and_then(|_| Witness::start());
    let restore = || {
        pass_on_inherited();
        Ok(())
    };
    // SAFETY: between fork and exec, the closure only makes async-signal-safe calls.
    unsafe { command.pre_exec(restore) };
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            if let Some(receiver) = receiver {
                receiver.give_up();
            }
            return Err(error);
        }
    };
    let pid = child.id().cast_signed();
    let forwarder = receiver.map(|receiver| receiver.forward_to(pid, witness));
    wait_for_end(pid, screen);
    screen.pause();
    let late = forwarder.and_then(Forwarder::end);
    let end = end_of(child.wait()?);
    if let Some(signal) = late.and_then(Signal::from_named_raw) {
        let _ = kill_process(getpid(), signal);
    }
    Ok(end)
}

/// Waits until the program has ended, without reaping it. When the program stops, this command stops too, so that the
/// shell takes the terminal back as it would from the program itself.
fn wait_for_end(pid: i32, screen: &Screen) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    let wait = |options| waitid(WaitId::Pid(pid), options);
    loop {
        match wait(WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT) {
            Ok(Some(status)) if status.stopped() => {
                // Consume the status, so that it is not reported again.
                let _ = wait(WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
                if has_terminal() {
                    screen.pause();
                    let _ = kill_process(getpid(), Signal::STOP);
                    screen.go_on();
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

/// Whether a shell with job control may be waiting for this command to stop.
fn has_terminal() -> bool {
    rustix::fs::open("/dev/tty", OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).is_ok()
}

fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (_, Some(signal)) => End::Killed(signal),
        (Some(code), None) => End::Exited(u8::try_from(code).unwrap_or(1)),
        (None, None) => End::Exited(1),
    }
}

impl End {
    /// Ends this command in the same way; does not return if a signal ended the program.
    pub(crate) fn repeat(self) -> ExitCode {
        match self {
            Self::Exited(code) => ExitCode::from(code),
            Self::Killed(signal) => {
                die_of(signal);
                // The status that a shell would report.
                ExitCode::from(u8::try_from(128 + signal).unwrap_or(1))
            }
        }
    }
}
