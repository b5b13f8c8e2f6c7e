//! Detects callers that need the driver's own memory: PyTorch's native allocator and NCCL.
//!
//! Both share memory with other processes (`cuIpcGetMemHandle`), which works only for memory allocated by the driver.
//! PyTorch does so for segments that it allocated while expandable segments were off, which the user chose or a
//! library that switches them off around its own tensors. Such a caller has a frame of its library on the stack; if
//! none of these libraries is loaded, no stack is walked.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::lookup;
use crate::stacks;

/// Prefixes of these libraries' file names; PyTorch's comes first.
const LIBRARIES: [&[u8]; 2] = [b"libc10_cuda", b"libnccl"];
/// Maximum number of loaded copies of one library.
const COPIES: usize = 4;
/// Frames to search: the CUDA runtime, a few frames deep, is between the driver and its caller.
const MOST_FRAMES: usize = 24;

struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// [`COPIES`] ranges for each library, in the same order.
static RANGES: [Range; COPIES * LIBRARIES.len()] =
    [const { Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; COPIES * LIBRARIES.len()];
/// The number of libraries loaded when `RANGES` was filled.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// Whether the call comes from one of these libraries.
pub(super) fn need_driver_memory() -> bool {
    is_called_by(&RANGES)
}

/// Whether the call comes from PyTorch's allocator.
pub(super) fn is_torch() -> bool {
    is_called_by(&RANGES[..COPIES])
}

/// Whether PyTorch's allocator itself makes the call: the first frame outside this library is its own. Other libraries
/// call through pointers that PyTorch's allocator looked up, so the frames further out do not decide.
pub(crate) fn is_direct_torch() -> bool {
    refresh();
    let ranges = &RANGES[..COPIES];
    let is_torch = Cell::new(false);
    let is_outside = |address: usize| {
        let is_outside = !lookup::is_in_this_library(address as *mut c_void);
        if is_outside {
            is_torch.set(is_inside(ranges, address));
        }
        is_outside
    };
    is_loaded(ranges) && stacks::any_caller(MOST_FRAMES, is_outside) && is_torch.get()
}

fn is_called_by(ranges: &[Range]) -> bool {
    refresh();
    is_loaded(ranges) && stacks::any_caller(MOST_FRAMES, |address| is_inside(ranges, address))
}

fn is_loaded(ranges: &[Range]) -> bool {
    ranges.iter().any(|range| range.end.load(Ordering::Acquire) != 0)
}

fn is_inside(ranges: &[Range], address: usize) -> bool {
    ranges.iter().any(|range| {
        address < range.end.load(Ordering::Acquire) && address >= range.start.load(Ordering::Relaxed)
    })
}

/// Searches for the libraries again if any library was loaded since. They are never unloaded, so their ranges stay
/// valid.
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
