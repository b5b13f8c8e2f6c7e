//! PyTorch tensors: the allocator in `libc10_cuda.so` reports each block to a function in `libc10.so`, called through
//! the dynamic linker. A preloaded function of the same name receives the call first, without any Python code.
//!
//! The real function feeds `torch.profiler`. `libc10.so` is not in the global scope, so the function is looked up in
//! that library, preferably when the recorder starts: inside the report PyTorch holds its allocator's lock.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use makeroom_trace::room::EventKind;

use crate::call::{Call, Role};
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

/// A block was allocated (`size` > 0) or freed (< 0).
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
        // SAFETY: PyTorch's function of this name; the mangled name encodes this signature.
        let real = unsafe { std::mem::transmute::<*mut c_void, ReportMemory>(address) };
        // SAFETY: PyTorch's own call, forwarded unchanged.
        unsafe { real(block, size, allocated, reserved, device) };
    }
}

/// PyTorch's allocator failed an allocation.
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
        // SAFETY: PyTorch's function of this name; the mangled name encodes this signature.
        let real = unsafe { std::mem::transmute::<*mut c_void, ReportRefusal>(address) };
        // SAFETY: PyTorch's own call, forwarded unchanged.
        unsafe { real(size, allocated, reserved, device) };
    }
}

/// Sends a tensor event. By default an allocation carries only its Python stack: a native one would cost more than
/// the allocation itself, and is taken only in native-only mode.
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
