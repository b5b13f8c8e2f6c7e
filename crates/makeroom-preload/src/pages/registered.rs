//! Libraries with which network and storage devices get the physical addresses of memory, without a call of CUDA that shows
//! which memory: InfiniBand verbs (`ibv_reg_mr`) and `GPUDirect` Storage.
//!
//! They are found in `/proc/self/maps`: the loader's own list is locked, and its lock may be held by a thread that waits for
//! PyTorch's. The file is read when PyTorch's memory grows and before pages move, at most once per second.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::notices::{Notice, raise};
use crate::{clock, files};

/// The beginnings of their file names. Wheels contain copies under longer names, such as `libibverbs-1d2c3b4a.so.1`.
const LIBRARIES: [&[u8]; 2] = [b"libibverbs", b"libcufile"];
const INTERVAL_NS: u64 = 1_000_000_000;

static IS_FOUND: AtomicBool = AtomicBool::new(false);
static LAST_NS: AtomicU64 = AtomicU64::new(0);

/// Whether such a library is loaded.
pub(super) fn is_possible() -> bool {
    if IS_FOUND.load(Ordering::Relaxed) {
        return true;
    }
    let (now, last) = (clock::monotonic_ns(), LAST_NS.load(Ordering::Relaxed));
    if last != 0 && now.wrapping_sub(last) < INTERVAL_NS {
        return false;
    }
    LAST_NS.store(now, Ordering::Relaxed);
    let is_found = files::read("/proc/self/maps").is_ok_and(|maps| names_one(&maps));
    if is_found {
        IS_FOUND.store(true, Ordering::Relaxed);
        raise(Notice::PagesKept);
    }
    is_found
}

fn names_one(maps: &[u8]) -> bool {
    let mut files =
        maps.split(|&byte| byte == b'\n').filter_map(|line| line.rsplitn(2, |&byte| byte == b'/').next());
    files.any(|file| LIBRARIES.iter().any(|name| file.starts_with(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_by_their_file_names() {
        let line = |file: &str| format!("7f0-7f1 r-xp 0 0:1 1  /usr/lib/{file}\n7f2-7f3 rw-p 0 0:0 0\n");
        assert!(names_one(line("libibverbs.so.1.14.54").as_bytes()));
        assert!(names_one(line("libcufile.so.0").as_bytes()));
        assert!(names_one(line("nixl.libs/libibverbs-1d2c3b4a.so.1.14.54").as_bytes()));
        for other in ["mylibibverbs.so", "libcuda.so.1", "libibverbs/libmlx5-rdmav34.so"] {
            assert!(!names_one(line(other).as_bytes()), "{other}");
        }
    }
}
