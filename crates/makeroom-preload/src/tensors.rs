//! PyTorch tensors: the allocator in `libc10_cuda.so` reports each block to a function in `libc10.so`. `hooks::reports`
//! receives the reports; here are PyTorch's own functions, and the events that become of them.
//!
//! The real function feeds `torch.profiler`. `libc10.so` is not in the global scope, so the function is looked up in
//! that library, preferably when the recorder starts: inside the report PyTorch holds its allocator's lock.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use makeroom_trace::room::EventKind;

use crate::config::{StackMode, config};
use crate::driver::devices;
use crate::record::event::RawEvent;
use crate::record::threads;
use crate::{clock, lookup, stacks};

const MEMORY: &CStr = c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
const REFUSAL: &CStr = c"_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";

static REAL_MEMORY: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REAL_REFUSAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// `c10::Device`: its type in the low byte, its index in the high one.
pub(crate) type TorchDevice = u16;

/// Looks up PyTorch's functions, if it is loaded.
pub(crate) fn start() {
    if let Some(library) = lookup::loaded(c"libc10.so") {
        REAL_MEMORY.store(lookup::real(library, MEMORY), Ordering::Release);
        REAL_REFUSAL.store(lookup::real(library, REFUSAL), Ordering::Release);
    }
}

fn real(place: &AtomicPtr<c_void>) -> *mut c_void {
    let known = place.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    start();
    place.load(Ordering::Acquire)
}

/// PyTorch's function for blocks; null if it is not loaded.
pub(crate) fn real_memory() -> *mut c_void {
    real(&REAL_MEMORY)
}

/// PyTorch's function for failed allocations; null if it is not loaded.
pub(crate) fn real_refusal() -> *mut c_void {
    real(&REAL_REFUSAL)
}

/// Sends a tensor event. By default an allocation carries only its Python stack: a native one would cost more than
/// the allocation itself, and is taken only in native-only mode.
pub(crate) fn send(event: RawEvent, device: TorchDevice, result: u16) {
    if let Some(ring) = threads::own() {
        ring.prefetch_next();
    }
    let is_allocation = event.kind == EventKind::TensorAlloc.number();
    let stack = match config().stacks {
        StackMode::Full if is_allocation => stacks::capture(stacks::Depth::PythonOnly),
        StackMode::Native if is_allocation => stacks::capture(stacks::Depth::Full),
        _ => 0,
    };
    devices::meet((device >> 8) as u8);
    threads::send(&RawEvent {
        time_ns: clock::monotonic_ns(),
        device: (device >> 8) as u8,
        result,
        stack,
        ..event
    });
}
