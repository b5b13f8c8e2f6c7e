//! The driver's types, and the few fields that are read from structures a program passes.
//!
//! Structures are read by the offsets in the 64-bit headers (CUDA 11 to 13, which only append). Every pointer may be
//! null: the driver, not the recorder, must reject what it does not accept.

use std::ffi::c_void;

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

/// The value of an out-parameter, zero if the program passed null.
///
/// # Safety
///
/// `pointer` is null, or the driver just filled it.
pub(crate) unsafe fn out<T: Copy + Default>(pointer: *const T) -> T {
    if pointer.is_null() {
        return T::default();
    }
    // SAFETY: not null, so the caller guarantees that the driver filled it.
    unsafe { pointer.read_unaligned() }
}

/// A field of a structure, zero if the program passed null.
///
/// # Safety
///
/// `structure` is null, or the driver just accepted it as the structure that `offset` belongs to.
pub(crate) unsafe fn field<T: Copy + Default>(structure: *const c_void, offset: usize) -> T {
    if structure.is_null() {
        return T::default();
    }
    // SAFETY: not null, so the caller guarantees that the structure holds a `T` at this offset.
    unsafe { structure.cast::<u8>().add(offset).cast::<T>().read_unaligned() }
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

/// Size of an array in bytes, from its descriptor: `u32` dimensions (before CUDA 3.2) or 64-bit ones, with or without
/// depth.
///
/// # Safety
///
/// `descriptor` is null or was passed to the driver, with the layout given by `SIZE` and `has_depth`.
pub(crate) unsafe fn array_bytes<const SIZE: usize>(descriptor: *const c_void, has_depth: bool) -> u64 {
    let dimension = |index: usize| {
        // SAFETY: width, height (and depth) come first, `SIZE` bytes each.
        unsafe {
            if SIZE == 4 {
                u64::from(field::<u32>(descriptor, index * 4))
            } else {
                field::<u64>(descriptor, index * 8)
            }
        }
    };
    let dimensions = if has_depth { 3 } else { 2 };
    let after = dimensions * SIZE;
    // SAFETY: the format and the number of channels follow the dimensions, four bytes each.
    let (format, channels): (u32, u32) = unsafe { (field(descriptor, after), field(descriptor, after + 4)) };
    if has_depth {
        // SAFETY: the flags follow.
        let flags: u32 = unsafe { field(descriptor, after + 8) };
        if flags & WITHOUT_MEMORY != 0 {
            return 0;
        }
    }
    let depth = if has_depth { dimension(2).max(1) } else { 1 };
    dimension(0)
        .saturating_mul(dimension(1).max(1))
        .saturating_mul(depth)
        .saturating_mul(u64::from(channels.max(1)))
        .saturating_mul(format_bytes(format))
}

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`: memory is mapped into the array later.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

/// Bytes per channel of a `CUarray_format`; compressed and planar formats count as one.
fn format_bytes(format: u32) -> u64 {
    match format {
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_zero_everywhere() {
        // SAFETY: null is allowed.
        unsafe {
            assert_eq!(out::<u64>(std::ptr::null()), 0);
            assert_eq!(location(std::ptr::null(), 8), (false, 0));
            assert_eq!(array_bytes::<8>(std::ptr::null(), true), 0);
        }
    }

    #[test]
    fn arrays_are_measured() {
        let flat: [u64; 3] = [64, 32, 0x20 | 4 << 32];
        let deep: [u64; 5] = [16, 0, 8, 0x02 | 1 << 32, 0];
        let sparse: [u64; 5] = [16, 0, 8, 0x02 | 1 << 32, 0x40];
        let old: [u32; 4] = [10, 0, 0x01, 2];
        // SAFETY: the descriptors have the stated layouts.
        unsafe {
            assert_eq!(array_bytes::<8>(flat.as_ptr().cast(), false), 64 * 32 * 4 * 4);
            assert_eq!(array_bytes::<8>(deep.as_ptr().cast(), true), 16 * 8 * 2);
            assert_eq!(array_bytes::<8>(sparse.as_ptr().cast(), true), 0);
            assert_eq!(array_bytes::<4>(old.as_ptr().cast(), false), 20);
        }
    }
}
