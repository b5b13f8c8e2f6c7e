//! PyTorch's tensors: the allocator of `libc10_cuda.so` reports each block to a function of `libc10.so`, and calls it
//! through the dynamic linker. A preloaded library of the same name hears it first, without any Python code.
//!
//! The real function feeds `torch.profiler`. `libc10.so` is not in the global scope, so it is looked up in that
//! library, at best when the recorder starts: here PyTorch holds its allocator's lock.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use makeroom_trace::room::EventKind;

use super::call::{Call, Role};
use crate::config::{StackMode, config};
use crate::driver::devices;
use crate::driver::types::OUT_OF_MEMORY;
use crate::record::event::RawEvent;
use crate::record::threads;
use crate::{clock, lookup, stacks, state};

const MEMORY: &CStr = c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
const REFUSAL: &CStr = c"_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";

static REAL_MEMORY: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REAL_REFUSAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// `c10::Device`: its type in the low byte, its index in the high one.
type TorchDevice = u16;
const CUDA: u16 = 1;

type ReportMemory = unsafe extern "C-unwind" fn(*mut c_void, i64, usize, usize, TorchDevice);
type ReportRefusal = unsafe extern "C-unwind" fn(i64, usize, usize, TorchDevice);

/// Looks PyTorch's own functions up, if it is loaded.
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

/// A block was handed out (`size` > 0) or taken back (< 0).
#[cfg_attr(not(test), unsafe(export_name = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"))]
unsafe extern "C-unwind" fn report_memory(
    block: *mut c_void,
    size: i64,
    allocated: usize,
    reserved: usize,
    device: TorchDevice,
) {
    let call = Call::new();
    if device & 0xff == CUDA && call.enter() == Role::Outermost && state::is_recording() {
        let kind = if size < 0 { EventKind::TensorFree } else { EventKind::TensorAlloc };
        let event = RawEvent::new(kind).at(block).size(size.unsigned_abs());
        Call::aside(|| send(event, device, 0));
    }
    let address = real(&REAL_MEMORY);
    if !address.is_null() {
        // SAFETY: PyTorch's function of this name, whose mangled name spells this signature.
        let real = unsafe { std::mem::transmute::<*mut c_void, ReportMemory>(address) };
        // SAFETY: PyTorch's own call, passed on as it came.
        unsafe { real(block, size, allocated, reserved, device) };
    }
}

/// PyTorch's allocator gives up.
#[cfg_attr(not(test), unsafe(export_name = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"))]
unsafe extern "C-unwind" fn report_refusal(
    size: i64,
    allocated: usize,
    reserved: usize,
    device: TorchDevice,
) {
    let call = Call::new();
    if device & 0xff == CUDA && call.enter() == Role::Outermost && state::is_recording() {
        let event = RawEvent::new(EventKind::TensorAlloc).size(size.unsigned_abs());
        Call::aside(|| send(event, device, OUT_OF_MEMORY as u16));
    }
    let address = real(&REAL_REFUSAL);
    if !address.is_null() {
        // SAFETY: PyTorch's function of this name, whose mangled name spells this signature.
        let real = unsafe { std::mem::transmute::<*mut c_void, ReportRefusal>(address) };
        // SAFETY: PyTorch's own call, passed on as it came.
        unsafe { real(size, allocated, reserved, device) };
    }
}

/// Sends a tensor's event. Allocations carry the Python stack only: a native one would cost more than the allocation, and
/// is there for whoever asks for native stacks alone.
fn send(event: RawEvent, device: TorchDevice, result: u16) {
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
