//! PyTorch's reports: its allocator calls functions in `libc10.so` through the dynamic linker for each block, and a
//! preloaded function of the same name receives the call first, without any Python code.
//!
//! A block gets its memory here, if its segment is paged: PyTorch uses it only after the report. Nothing is thrown, and
//! PyTorch holds its allocator's lock.

use std::ffi::c_void;

use makeroom_trace::room::EventKind;

use crate::call::{Call, Role};
use crate::driver::types::OUT_OF_MEMORY;
use crate::record::event::RawEvent;
use crate::tensors::{self, TorchDevice};
use crate::{pages, state};

/// The type of a CUDA device.
const CUDA: u16 = 1;

type ReportMemory = unsafe extern "C-unwind" fn(*mut c_void, i64, usize, usize, TorchDevice);
type ReportRefusal = unsafe extern "C-unwind" fn(i64, usize, usize, TorchDevice);

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
    let is_outermost = device & 0xff == CUDA && call.enter() == Role::Outermost;
    if is_outermost {
        pages::report(block as u64, size, allocated as u64, (device >> 8) as u8);
    }
    if is_outermost && state::is_recording() {
        let kind = if size < 0 { EventKind::TensorFree } else { EventKind::TensorAlloc };
        let event = RawEvent::new(kind).at(block).size(size.unsigned_abs());
        Call::aside(|| tensors::send(event, device, 0));
    }
    let address = tensors::real_memory();
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
        Call::aside(|| tensors::send(event, device, OUT_OF_MEMORY as u16));
    }
    let address = tensors::real_refusal();
    if !address.is_null() {
        // SAFETY: PyTorch's function of this name; the mangled name encodes this signature.
        let real = unsafe { std::mem::transmute::<*mut c_void, ReportRefusal>(address) };
        // SAFETY: PyTorch's own call, forwarded unchanged.
        unsafe { real(size, allocated, reserved, device) };
    }
}
