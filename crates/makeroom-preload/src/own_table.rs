//! A private file descriptor table for the writer thread.
//!
//! Threads normally share one table, and the program's `closefrom`, its `dup2` over any number, or a lower limit
//! could close the recording or put another file under its number between two instructions. A thread can leave the
//! shared table for its own. The new table starts empty, because copies of the program's pipes and sockets would keep
//! them open after the program closes them. This thread then cannot reach the program's descriptors nor the program
//! its own, and a forked child does not inherit them.
//!
//! `close_range` does this in one call (Linux 5.9). On older kernels `unshare` copies the table, and the copies are
//! closed. Containers may forbid `unshare`; then the thread stays in the shared table, and `files` checks each
//! descriptor's identity.

use std::cell::Cell;
use std::fs;

/// `CLOSE_RANGE_UNSHARE` of `close_range`.
const UNSHARE: u32 = 2;
/// Standard input, output and error.
const STANDARD: std::ops::Range<i32> = 0..3;
/// Numbers to close if the kernel does not list those in use.
const MOST_UNLISTED: i32 = 1 << 16;

thread_local! {
    // Const-initialized and without a destructor, so it can be read at any point in a thread's life.
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread has its own table.
pub(crate) fn is_here() -> bool {
    IS_HERE.get()
}

/// Gives the calling thread an empty table of its own, if possible. The thread must hold no descriptor and must never
/// call the driver, whose files stay in the shared table.
pub(crate) fn leave_shared() {
    let is_left = leave_by_close_range() || leave_by_unshare();
    IS_HERE.set(is_left);
    if is_left {
        occupy_standard_numbers();
    }
}

fn leave_by_close_range() -> bool {
    // SAFETY: closes nothing in other threads' tables; the calling thread holds no descriptor.
    unsafe { libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, UNSHARE) == 0 }
}

fn leave_by_unshare() -> bool {
    // SAFETY: `unshare` copies the table, which has no preconditions.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return false;
    }
    let listed: Option<Vec<i32>> = fs::read_dir("/proc/thread-self/fd").ok().map(|entries| {
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).collect()
    });
    for number in listed.unwrap_or_else(|| (0..MOST_UNLISTED).collect()) {
        // SAFETY: these are copies in a table that only this thread has.
        unsafe { libc::close(number) };
    }
    true
}

/// The C library prints emergencies to descriptor 2, whatever it is. Unconnected sockets occupy the three standard
/// numbers so that the recording gets none of them.
fn occupy_standard_numbers() {
    for _ in STANDARD {
        // SAFETY: `socket` has no preconditions.
        let number = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if !STANDARD.contains(&number) {
            // SAFETY: it was just created, in a table that only this thread has.
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
