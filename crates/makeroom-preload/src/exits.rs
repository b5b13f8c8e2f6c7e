//! How a process ends, and that its last events reach the file.
//!
//! After `exit` and a return from `main` the library's destructor finishes the recording. `_exit` runs no destructors
//! (Python's `multiprocessing` ends all its children so), so it is exported here, finishes the recording and ends the
//! process. A signal leaves what the writer wrote so far: all but the last tenth of a second.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::{state, writer};

/// What the program passed to `exit`.
static STATUS: AtomicI32 = AtomicI32::new(0);

/// Asks to be told the exit status.
pub(crate) fn register() {
    // SAFETY: the handler is a function that stays loaded.
    unsafe { on_exit(remember, std::ptr::null_mut()) };
}

extern "C" fn remember(status: i32, _nothing: *mut c_void) {
    STATUS.store(status, Ordering::Relaxed);
}

unsafe extern "C" {
    fn on_exit(handler: extern "C" fn(i32, *mut c_void), argument: *mut c_void) -> i32;
}

/// Finishes the recording, if this very process has one.
pub(crate) fn finish(status: Option<i32>) {
    if state::is_own() {
        writer::finish(status.unwrap_or_else(|| STATUS.load(Ordering::Relaxed)));
        state::disable();
    }
}

#[cfg(not(test))]
mod exported {
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
        loop {
            // SAFETY: the system call that the C library's function makes; it does not return.
            unsafe { libc::syscall(libc::SYS_exit_group, status) };
        }
    }
}
