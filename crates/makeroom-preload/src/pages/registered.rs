//! Devices that get the physical addresses of memory without a call of CUDA that shows which memory: RDMA networks
//! (`ibv_reg_mr`), `GPUDirect` Storage and `GDRCopy`.
//!
//! A process that registers memory with one of them has its device file open, so the descriptors are looked through when
//! PyTorch's memory grows and before pages move. That their libraries are loaded means nothing: PyTorch itself loads
//! `libcufile`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::notices::{Notice, raise};
use crate::{clock, files};

/// The beginnings of the names of their device files.
const DEVICES: [&[u8]; 5] =
    [b"/dev/infiniband/", b"/dev/nvidia-fs", b"/dev/gdrdrv", b"/dev/hfi1", b"/dev/cxi"];
/// The shortest time between two looks, and how many times as long as the last look it is at least.
const INTERVAL_NS: u64 = 100_000_000;
const LOOKS: u64 = 500;

static IS_FOUND: AtomicBool = AtomicBool::new(false);
static NEXT_NS: AtomicU64 = AtomicU64::new(0);

/// Whether such a device is open. If that cannot be found out, it may be.
pub(super) fn is_possible() -> bool {
    if IS_FOUND.load(Ordering::Relaxed) {
        return true;
    }
    let now = clock::monotonic_ns();
    if now < NEXT_NS.load(Ordering::Relaxed) {
        return false;
    }
    let is_found = files::has_open(is_registering).unwrap_or(true);
    let took = clock::monotonic_ns().saturating_sub(now);
    NEXT_NS.store(now.saturating_add(INTERVAL_NS.max(LOOKS.saturating_mul(took))), Ordering::Relaxed);
    if is_found {
        IS_FOUND.store(true, Ordering::Relaxed);
        raise(Notice::PagesKept);
    }
    is_found
}

fn is_registering(file: &[u8]) -> bool {
    DEVICES.iter().any(|name| file.starts_with(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn devices_are_found_by_their_names() {
        for device in ["/dev/infiniband/uverbs0", "/dev/nvidia-fs3", "/dev/gdrdrv", "/dev/cxi0"] {
            assert!(is_registering(device.as_bytes()), "{device}");
        }
        for other in ["/dev/nvidia0", "/dev/nvidia-uvm", "/tmp/dev/infiniband/uverbs0", "socket:[7]"] {
            assert!(!is_registering(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn open_files_are_found() {
        let own = std::env::current_exe().unwrap();
        let _open = std::fs::File::open(&own).unwrap();
        assert!(files::has_open(|file| file == own.as_os_str().as_bytes()).unwrap());
        assert!(!files::has_open(|file| file.starts_with(b"/no/such/")).unwrap());
    }
}
