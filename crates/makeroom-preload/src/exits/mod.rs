//! Ways in which a process exits, and how the last events still reach the file.
//!
//! | exit by | handling |
//! |---|---|
//! | `exit`, a return from `main` | the library's destructor finishes the recording, after all of the program's handlers |
//! | `_exit`, `_Exit` | run no destructors (Python's `multiprocessing` ends its child processes this way): exported here; they finish the recording and exit |
//! | `quick_exit` | a handler registered before any of the program's, so that it runs after them |
//! | the `exec` family, `abort`, a failed `assert`, `raise` and `kill` to itself | exported here ([`shims`]); the recording is flushed with the expected end, then the real function runs |
//! | a signal from outside, a fault, `exec` by a raw system call | the file as the writer left it: all but the last tenth of a second |
//!
//! The last row has no handler on purpose. The program would see our signal handler when it queries its own, the
//! handler might run on a stack that just overflowed, and it would come between the fault and the core dump. Failed
//! allocations, which faults often follow, are written as they happen.
//!
//! The expected end may not happen: `exec` fails, a handler jumps out of `abort`. Then recording continues, and the
//! next record in the file revokes the end.

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(test)))]
mod shims;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use crate::writer::Expected;
use crate::{errno, lookup, notices, state, writer};

/// The status passed to `exit` or `quick_exit`.
static STATUS: AtomicI32 = AtomicI32::new(0);
/// The real `_exit`.
#[cfg(not(test))]
static REAL_EXIT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Registers a handler that receives the exit status.
pub(crate) fn register() {
    // SAFETY: the handler is a function that stays loaded.
    unsafe { on_exit(remember, std::ptr::null_mut()) };
}

/// Runs before the program's first instruction: registers the handler that must run last and looks up the real
/// functions, because a forked child may call `exec` where lookups no longer work.
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

/// Finishes the recording, if this process has one.
pub(crate) fn finish(status: Option<i32>) {
    if state::is_own() {
        writer::finish(status.unwrap_or_else(|| STATUS.load(Ordering::Relaxed)));
        state::disable();
    }
    notices::print_what_is_left();
}

/// The way in which the program is about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Departure {
    /// Executes another program.
    Exec = 0,
    /// Aborts.
    Abort = 1,
    /// Sends itself the signal in the first argument.
    Raise = 2,
    /// Sends the process in the first argument the signal in the second.
    Kill = 3,
    /// Calls `quick_exit` with the status in the first argument.
    QuickExit = 4,
}

/// Flushes the file before a departure. A child of `vfork` runs in its parent's memory but is another process: it
/// touches nothing.
pub(crate) fn before(departure: Departure, first: i32, second: i32) {
    if !state::is_own() {
        return;
    }
    let _errno = errno::ErrnoGuard::new();
    // A panic must not unwind into the program's call. It costs the last tenth of a second of the recording.
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
    // SAFETY: neither has preconditions.
    let (process, group) = unsafe { (libc::getpid(), libc::getpgrp()) };
    target == process || target == 0 || target == -group
}

/// Flushes everything if the signal will end the process: its default action does, and no handler is set.
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
    // SAFETY: all zeros are a valid `sigaction`, used as the out-parameter; no action is changed.
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

    /// Ends the process at once, like the C library's function of this name.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn _exit(status: i32) -> ! {
        end(status)
    }

    /// The C standard's name for `_exit`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn _Exit(status: i32) -> ! {
        end(status)
    }

    fn end(status: i32) -> ! {
        super::finish(Some(status));
        let real = super::REAL_EXIT.load(Ordering::Acquire);
        if !real.is_null() {
            // SAFETY: the address is an `_exit`: the C library's, or that of a library interposed before it.
            let real = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(i32) -> !>(real) };
            // SAFETY: `_exit` has no preconditions.
            unsafe { real(status) };
        }
        loop {
            // SAFETY: the system call that the C library's function makes; it does not return.
            unsafe { libc::syscall(libc::SYS_exit_group, status) };
        }
    }
}
