//! Warns when PyTorch shares tensors with other processes and the system will not allow it, with expandable segments.
//!
//! PyTorch exports a tensor's pages as file descriptors, which the other process fetches with `pidfd_getfd`. Many
//! containers forbid that call, and Yama allows it only on descendants. PyTorch's own error does not say what to
//! change, so a notice does, when the program exports its first tensor. `makeroom run --pool` turns expandable
//! segments on only where the call is permitted; the notice covers Yama and users who turn them on themselves.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use super::callers;
use crate::driver::types::CuResult;
use crate::notices::{Notice, warn_once};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FILE_DESCRIPTOR: i32 = 1;
/// `CAP_SYS_PTRACE`.
const MAY_TRACE: u64 = 1 << 19;

/// Checked once: a large tensor has hundreds of pages, each exported separately.
static IS_CHECKED: AtomicBool = AtomicBool::new(false);

/// Physical memory is about to be exported; the driver exports it.
pub(crate) fn exports(kind: i32) -> Option<CuResult> {
    if kind == FILE_DESCRIPTOR
        && !IS_CHECKED.load(Ordering::Relaxed)
        && callers::is_torch()
        && !IS_CHECKED.swap(true, Ordering::Relaxed)
        && !(is_permitted() && is_allowed())
    {
        warn_once(Notice::CannotShareSegments);
    }
    None
}

/// Whether the system permits `pidfd_getfd` at all, tried on this process.
fn is_permitted() -> bool {
    // SAFETY: plain system calls on this process; the descriptors they open are closed below.
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

/// Whether Yama allows it to every process of the same user, not only to ancestors of the exporting one.
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
