//! The program as a child: its terminal and its signals are passed on, its exit status is ours.

use std::io::{self, IsTerminal as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::status::Screen;
use crate::signals::not_ignored;

/// Signals that a terminal sends to the program itself, because it is in the same foreground group.
const OF_TERMINAL: [i32; 3] = [SIGINT, SIGQUIT, SIGWINCH];

/// Signals that are passed on or change what is drawn.
const HEARD: [i32; 9] = [SIGINT, SIGQUIT, SIGWINCH, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP];

/// Runs the program to its end. What is drawn on the screen goes while this command is stopped.
pub(crate) fn run(command: &mut Command, screen: Screen) -> io::Result<ExitCode> {
    let mut signals = Signals::new(not_ignored(&HEARD))?;
    let mut child = command.spawn()?;
    let is_running = Arc::new(AtomicBool::new(true));
    let (pid, still_running) = (child.id(), Arc::clone(&is_running));
    let handle = signals.handle();
    let forwarder = std::thread::spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGTSTP => {
                    screen.pause();
                    // Stops, as it would without a handler; a terminal has told the program as well.
                    let _ = emulate_default_handler(SIGTSTP);
                    continue;
                }
                SIGCONT => screen.go_on(),
                _ => {}
            }
            let is_told = OF_TERMINAL.contains(&signal) && io::stdin().is_terminal();
            if !is_told && still_running.load(Ordering::Acquire) {
                pass_on(pid, signal);
            }
        }
    });
    let status = child.wait();
    is_running.store(false, Ordering::Release);
    handle.close();
    // The thread ends once the handle is closed; a panic in it changes nothing for the program.
    let _ = forwarder.join();
    Ok(exit_code(status?))
}

fn pass_on(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
        // A program that is gone by now needs no signal.
        let _ = kill_process(pid, signal);
    }
}

/// The program's own status; for a program that a signal ended, what a shell would answer.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
}
