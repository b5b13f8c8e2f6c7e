//! Libraries with which network and storage devices get the physical addresses of memory, without a call of CUDA that shows
//! which memory: InfiniBand verbs (`ibv_reg_mr`) and `GPUDirect` Storage.
//!
//! They are found in `/proc/self/maps`: the loader's own list is locked, and its lock may be held by a thread that waits for
//! PyTorch's. The file is read when PyTorch's memory grows, at most once per second.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::notices::{Notice, raise};
use crate::{clock, files};

const LIBRARIES: [&[u8]; 2] = [b"/libibverbs.so", b"/libcufile.so"];
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
    LIBRARIES.iter().any(|name| maps.windows(name.len()).any(|part| part == *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_by_their_file_names() {
        let line = |file: &str| format!("7f0-7f1 r-xp 0 0:1 1  /usr/lib/{file}\n7f2-7f3 rw-p 0 0:0 0\n");
        assert!(names_one(line("libibverbs.so.1.14.54").as_bytes()));
        assert!(names_one(line("libcufile.so.0").as_bytes()));
        assert!(
            !names_one(line("mylibibverbs.so").as_bytes()) && !names_one(line("libcuda.so.1").as_bytes())
        );
    }
}
