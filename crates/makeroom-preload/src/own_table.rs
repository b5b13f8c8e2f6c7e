//! A table of descriptors for the writer's thread alone.
//!
//! Threads share one table, and what a program does to it, `closefrom`, `dup2` over any number, a lower limit, would
//! close the recording or put another file under its number between two instructions. A thread can leave the shared table
//! for one of its own. That is done here, empty from the start: a copy of the program's pipes and sockets would keep them
//! open after the program has closed them. Descriptors of the program are then out of reach for this thread, and its own
//! are out of reach for the program; a child of a fork does not get them either.
//!
//! `close_range` does both at once (Linux 5.9). Before that `unshare` copies the table, and the copies are closed.
//! Containers may forbid the latter; then the thread stays in the shared table, and `files` identifies what it uses.

use std::cell::Cell;
use std::fs;

/// `CLOSE_RANGE_UNSHARE`.
const UNSHARE: u32 = 2;
/// Numbers of standard input, output and error.
const STANDARD: std::ops::Range<i32> = 0..3;
/// Numbers that are closed where the kernel does not list those in use.
const MOST_UNLISTED: i32 = 1 << 16;

thread_local! {
    // Constant and without a destructor: readable at any moment of a thread's life.
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread has a table of its own.
pub(crate) fn is_here() -> bool {
    IS_HERE.get()
}

/// Gives the calling thread an empty table of its own, where that is possible. The thread must hold no descriptor, and
/// must never call the driver, whose files stay in the shared table.
pub(crate) fn leave_shared() {
    let is_left = leave_by_close_range() || leave_by_unshare();
    IS_HERE.set(is_left);
    if is_left {
        occupy_standard_numbers();
    }
}

fn leave_by_close_range() -> bool {
    // SAFETY: closes nothing that others have; the calling thread holds no descriptor.
    unsafe { libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, UNSHARE) == 0 }
}

fn leave_by_unshare() -> bool {
    // SAFETY: copies the table, which has no conditions.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return false;
    }
    let listed: Option<Vec<i32>> = fs::read_dir("/proc/thread-self/fd").ok().map(|entries| {
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).collect()
    });
    for number in listed.unwrap_or_else(|| (0..MOST_UNLISTED).collect()) {
        // SAFETY: these are copies in a table that nobody else has.
        unsafe { libc::close(number) };
    }
    true
}

/// What the C library prints in an emergency goes to number 2, whatever that is: sockets that lead nowhere keep the
/// recording from getting one of these numbers.
fn occupy_standard_numbers() {
    for _ in STANDARD {
        // SAFETY: making a socket has no conditions.
        let number = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if !STANDARD.contains(&number) {
            // SAFETY: it was just made, in a table that nobody else has.
            unsafe { libc::close(number) };
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd as _, IntoRawFd as _};

    use super::*;
    use crate::files;

    #[test]
    fn neither_side_reaches_the_other() {
        let shared = File::open("/proc/self/maps").unwrap();
        let number = shared.as_raw_fd();
        std::thread::spawn(move || {
            leave_shared();
            if !is_here() {
                eprintln!("skipped: this kernel gives no thread a table of its own");
                return;
            }
            assert_eq!(files::identity(number), None, "what others have is not here");
            let own = File::open("/proc/self/exe").unwrap().into_raw_fd();
            assert!(own > 2, "{own}");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    leave_shared();
                    assert_eq!(files::identity(own), None);
                });
            });
            assert!(files::identity(own).is_some());
        })
        .join()
        .unwrap();
        assert!(!is_here());
        assert!(files::identity(number).is_some(), "what others have stays");
    }
}
