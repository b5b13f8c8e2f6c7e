//! How a process ends, and that its last events reach the file.
//!
//! | the end | what happens |
//! |---|---|
//! | `exit`, a return from `main` | the library's destructor finishes the recording, after all that the program registered |
//! | `_exit`, `_Exit` | run no destructors (Python's `multiprocessing` ends all its children so): exported here; they finish the recording and end the process |
//! | `quick_exit` | a handler that was registered before any of the program's own, and so runs after them |
//! | the `exec` family, `abort`, a failed `assert`, `raise` and `kill` to itself | exported here ([`shims`]); the recording is written up to this moment, with the end that is expected, and the real function does the rest |
//! | a signal from outside, a fault, `exec` by a bare system call | what the writer wrote so far: all but the last tenth of a second |
//!
//! For the last row nothing is done on purpose. A handler of ours would be seen by the program that asks for its own,
//! would have to run on stacks that just overflowed, and would stand between the fault and the core dump. Refused
//! allocations, which faults like to follow, are written as they happen.
//!
//! What is expected may not come: `exec` fails, a handler jumps out of `abort`. Then the recording goes on, and what
//! follows in the file revokes the end.

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(test)))]
mod shims;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use crate::writer::Expected;
use crate::{errno, lookup, notices, state, writer};

/// What the program passed to `exit` or `quick_exit`.
static STATUS: AtomicI32 = AtomicI32::new(0);
/// The `_exit` behind this library's own.
#[cfg(not(test))]
static REAL_EXIT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Asks to be told the exit status.
pub(crate) fn register() {
    // SAFETY: the handler is a function that stays loaded.
    unsafe { on_exit(remember, std::ptr::null_mut()) };
}

/// What must stand before the program's first instruction: the handler that has to run last, and the real functions,
/// because a forked child may call `exec` where nothing can be looked up any more.
#[cfg(not(test))]
pub(crate) fn prepare() {
    // SAFETY: the handler is a function that stays loaded.
    unsafe { __cxa_at_quick_exit(finish_quickly, std::ptr::null_mut()) };
    REAL_EXIT.store(lookup::real(libc::RTLD_NEXT, c"_exit"), Ordering::Release);
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    shims::find_all();
}

extern "C" fn remember(status: i32, _nothing: *mut c_void) {
    STATUS.store(status, Ordering::Relaxed);
}

extern "C" fn finish_quickly(_nothing: *mut c_void) {
    finish(None);
}

unsafe extern "C" {
    fn on_exit(handler: extern "C" fn(i32, *mut c_void), argument: *mut c_void) -> i32;
    fn __cxa_at_quick_exit(handler: extern "C" fn(*mut c_void), library: *mut c_void) -> i32;
}

/// Finishes the recording, if this very process has one.
pub(crate) fn finish(status: Option<i32>) {
    if state::is_own() {
        writer::finish(status.unwrap_or_else(|| STATUS.load(Ordering::Relaxed)));
        state::disable();
    }
    notices::print_what_is_left();
}

/// What the program is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Departure {
    /// It becomes another program.
    Exec = 0,
    /// It aborts.
    Abort = 1,
    /// It sends itself the signal that is the first argument.
    Raise = 2,
    /// It sends the process that is the first argument the signal that is the second.
    Kill = 3,
    /// It ends by `quick_exit` with the status that is the first argument.
    QuickExit = 4,
}

/// Brings the file up to date before a departure. A child of `vfork` comes here with its parent's memory: it is
/// another process, so nothing is its own and nothing is touched.
pub(crate) fn before(departure: Departure, first: i32, second: i32) {
    if !state::is_own() {
        return;
    }
    let _errno = errno::Kept::new();
    // A panic here would have to cross the program's own call; what it loses is the last tenth of a second.
    let _ = catch_unwind(AssertUnwindSafe(|| match departure {
        Departure::Exec => writer::flush(Expected::Exec),
        Departure::Abort => before_signal(libc::SIGABRT),
        Departure::Raise => before_signal(first),
        Departure::Kill if is_this_process(first) => before_signal(second),
        Departure::Kill => {}
        Departure::QuickExit => STATUS.store(first, Ordering::Relaxed),
    }));
}

/// Whether `kill` with this argument reaches the calling process.
fn is_this_process(target: i32) -> bool {
    // SAFETY: neither has conditions.
    let (process, group) = unsafe { (libc::getpid(), libc::getpgrp()) };
    target == process || target == 0 || target == -group
}

/// Writes everything if the signal is going to end the process: it does by default, and nobody handles it.
fn before_signal(signal: i32) {
    const HARMLESS: [i32; 8] = [
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGURG,
        libc::SIGWINCH,
    ];
    // SAFETY: all zeros are a valid `sigaction`, which is a valid place for the answer; nothing is changed.
    let is_default = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_DFL
    };
    if signal > 0 && is_default && !HARMLESS.contains(&signal) {
        writer::flush(Expected::Signal(signal));
    }
}

#[cfg(not(test))]
mod exported {
    use std::ffi::c_void;
    use std::sync::atomic::Ordering;

    /// Ends the process at once, as the C library's function of this name.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn _exit(status: i32) -> ! {
        end(status)
    }

    /// The C standard's name for the same.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn _Exit(status: i32) -> ! {
        end(status)
    }

    fn end(status: i32) -> ! {
        super::finish(Some(status));
        let real = super::REAL_EXIT.load(Ordering::Acquire);
        if !real.is_null() {
            // SAFETY: the address is that of an `_exit`: the C library's, or of another library that stands before it.
            let real = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(i32) -> !>(real) };
            // SAFETY: it has no conditions.
            unsafe { real(status) };
        }
        loop {
            // SAFETY: the system call that the C library's function makes; it does not return.
            unsafe { libc::syscall(libc::SYS_exit_group, status) };
        }
    }
}
