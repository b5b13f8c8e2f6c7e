//! The driver's types, and the fields that are read from structures a program passes.
//!
//! Structures are read by the offsets in the 64-bit headers (CUDA 11 to 13, which only append). Every pointer may be
//! null: the driver, not the recorder, must reject what it does not accept.

use std::ffi::c_void;

use crate::fields::field;

/// Return code of every driver function; 0 is success.
pub(crate) type CuResult = i32;
/// An address in device memory.
pub(crate) type DevicePointer = u64;
/// The same in the API before CUDA 3.2.
pub(crate) type ShortPointer = u32;
/// A context, stream, pool, array, graph, module and so on.
pub(crate) type Handle = *mut c_void;
/// A device index.
pub(crate) type Device = i32;

/// Success.
pub(crate) const SUCCESS: CuResult = 0;
/// Out of memory.
pub(crate) const OUT_OF_MEMORY: CuResult = 2;
/// `CUDA_ERROR_STUB_LIBRARY`: no driver is behind this function.
pub(crate) const NO_DRIVER: CuResult = 34;

/// Names memory of another process; passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle {
    reserved: [u8; 64],
}

/// A `CUmemLocation`: whether it is a device, and which one. The other kinds are the host and its NUMA nodes.
///
/// # Safety
///
/// `structure` is null or holds a location at this offset.
pub(crate) unsafe fn location(structure: *const c_void, offset: usize) -> (bool, Device) {
    // SAFETY: a location is a type and an id.
    let (kind, id): (i32, Device) = unsafe { (field(structure, offset), field(structure, offset + 4)) };
    (kind == LOCATION_IS_DEVICE, id)
}

const LOCATION_IS_DEVICE: i32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_zero_everywhere() {
        // SAFETY: null is allowed.
        unsafe {
            assert_eq!(location(std::ptr::null(), 8), (false, 0));
        }
    }
}
