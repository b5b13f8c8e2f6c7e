//! Callers whose memory stays the driver's own: PyTorch's native allocator and NCCL.
//!
//! Both share memory with other processes (`cuIpcGetMemHandle`), which works only for memory of the driver's. PyTorch
//! does so for segments that it took while expandable segments were off: the user's choice, or that of a library which
//! switches them off around its own tensors. Such a caller has a frame of its library on the stack; where none of these
//! libraries is loaded, no stack is walked.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::lookup;
use crate::stacks;

/// How the files of these libraries begin: PyTorch's first.
const LIBRARIES: [&[u8]; 2] = [b"libc10_cuda", b"libnccl"];
/// More copies of one than any process has.
const COPIES: usize = 4;
/// Between the driver and its caller lies CUDA's runtime, a few frames deep.
const MOST_FRAMES: usize = 24;

struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// The first [`COPIES`] are the first library's, and so on.
static RANGES: [Range; COPIES * LIBRARIES.len()] =
    [const { Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; COPIES * LIBRARIES.len()];
/// How many libraries of any kind had been loaded when `RANGES` was filled.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// Whether the calling thread asks on behalf of such a library.
pub(super) fn need_driver_memory() -> bool {
    is_called_by(&RANGES)
}

/// Whether PyTorch's allocator makes the call.
pub(super) fn is_torch() -> bool {
    is_called_by(&RANGES[..COPIES])
}

fn is_called_by(ranges: &[Range]) -> bool {
    refresh();
    let is_any = ranges.iter().any(|range| range.end.load(Ordering::Acquire) != 0);
    let is_inside = |address: usize| {
        ranges.iter().any(|range| {
            address < range.end.load(Ordering::Acquire) && address >= range.start.load(Ordering::Relaxed)
        })
    };
    is_any && stacks::any_caller(MOST_FRAMES, is_inside)
}

/// Looks for the libraries again if something was loaded since. They are never unloaded, so a range stays where it is.
fn refresh() {
    let loads = lookup::loads();
    if SEEN.load(Ordering::Acquire) == loads {
        return;
    }
    for (library, places) in LIBRARIES.iter().zip(RANGES.chunks(COPIES)) {
        let mut places = places.iter();
        lookup::each_named(library, |found| {
            if let Some(place) = places.next() {
                place.start.store(found.start, Ordering::Relaxed);
                place.end.store(found.end, Ordering::Release);
            }
        });
    }
    SEEN.store(loads, Ordering::Release);
}
