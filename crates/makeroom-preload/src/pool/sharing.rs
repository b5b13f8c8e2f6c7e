//! PyTorch's tensors in other processes, with expandable segments.
//!
//! PyTorch exports the pages of a tensor as file descriptors, and the other process fetches them with `pidfd_getfd`. Many
//! containers forbid that call, and Yama allows it only on descendants. PyTorch's own error then does not say what to
//! change, so it is said here, when such a program exports its first tensor.

use std::fs;

use super::callers;
use crate::driver::types::CuResult;
use crate::notices::{Notice, raise_loudly};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FILE_DESCRIPTOR: i32 = 1;
/// `CAP_SYS_PTRACE`.
const MAY_TRACE: u64 = 1 << 19;

/// Physical memory is about to be exported; the driver does that.
pub(crate) fn exports(kind: i32) -> Option<CuResult> {
    if kind == FILE_DESCRIPTOR && callers::is_torch() && !(is_called() && is_allowed()) {
        raise_loudly(Notice::CannotShareSegments);
    }
    None
}

/// Whether the system lets `pidfd_getfd` through at all, tried on this process.
fn is_called() -> bool {
    // SAFETY: plain system calls on this process; what they open is closed below.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        if process < 0 {
            return false;
        }
        let copy = libc::syscall(libc::SYS_pidfd_getfd, process, process, 0);
        if copy >= 0 {
            libc::close(copy as i32);
        }
        libc::close(process as i32);
        copy >= 0
    }
}

/// Whether Yama lets another process of the same user do it.
fn is_allowed() -> bool {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    allows(scope.as_deref(), &fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn allows(scope: Option<&str>, status: &str) -> bool {
    let is_open = scope.is_none_or(|scope| scope.trim() == "0");
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    is_open || capabilities & MAY_TRACE != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yama_and_capabilities_decide() {
        let (none, root) = ("Name:\tx\nCapEff:\t0000000000000000\n", "CapEff:\t000001ffffffffff\n");
        assert!(allows(None, none), "a kernel without Yama");
        assert!(allows(Some("0\n"), none));
        assert!(!allows(Some("1\n"), none));
        assert!(allows(Some("1\n"), root));
        assert!(!allows(Some("1\n"), "CapEff:\t00000000a80425fb\n"), "root in a container");
    }
}
