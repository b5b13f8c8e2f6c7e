//! The driver's types, and the few figures that are read out of structures a program passes.
//!
//! Structures are read by the offsets of the 64-bit headers (CUDA 11 to 13, which only append). Every pointer may be
//! null: programs pass null where the driver would refuse, and the driver must be the one to say so.

use std::ffi::c_void;

/// What every driver function answers; 0 is success.
pub(crate) type CuResult = i32;
/// An address in device memory.
pub(crate) type DevicePointer = u64;
/// The same in functions older than CUDA 3.2.
pub(crate) type ShortPointer = u32;
/// A context, stream, pool, array, graph, module …
pub(crate) type Handle = *mut c_void;
/// A device, by its index.
pub(crate) type Device = i32;

/// Success.
pub(crate) const SUCCESS: CuResult = 0;
/// Out of memory.
pub(crate) const OUT_OF_MEMORY: CuResult = 2;
/// "A stub library": there is no driver behind this function.
pub(crate) const NO_DRIVER: CuResult = 34;

/// What names memory of another process; passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle {
    reserved: [u8; 64],
}

/// What an out-parameter holds, zero if the program passed none.
///
/// # Safety
///
/// `pointer` is null, or the driver just filled it.
pub(crate) unsafe fn out<T: Copy + Default>(pointer: *const T) -> T {
    if pointer.is_null() {
        return T::default();
    }
    // SAFETY: not null, so by the caller's word it points to what the driver filled.
    unsafe { pointer.read_unaligned() }
}

/// A field of a structure, zero if the program passed none.
///
/// # Safety
///
/// `structure` is null, or the driver just accepted it as the structure that `offset` belongs to.
pub(crate) unsafe fn field<T: Copy + Default>(structure: *const c_void, offset: usize) -> T {
    if structure.is_null() {
        return T::default();
    }
    // SAFETY: not null, so by the caller's word the structure holds a `T` at this offset.
    unsafe { structure.cast::<u8>().add(offset).cast::<T>().read_unaligned() }
}

/// A `CUmemLocation`: whether it is a device, and which. Not a device are the host and its nodes.
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

/// The bytes of an array, from its descriptor: `u32` sizes (before CUDA 3.2) or words; with or without a depth.
///
/// # Safety
///
/// `descriptor` is null or what the driver was given, of the shape that `SIZE` and `has_depth` say.
pub(crate) unsafe fn array_bytes<const SIZE: usize>(descriptor: *const c_void, has_depth: bool) -> u64 {
    let dimension = |index: usize| {
        // SAFETY: width, height (and depth) stand first, `SIZE` bytes each.
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

/// Bytes of one channel in a `CUarray_format`; compressed and planar ones count as one.
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
        // SAFETY: the descriptors have the shapes that are said.
        unsafe {
            assert_eq!(array_bytes::<8>(flat.as_ptr().cast(), false), 64 * 32 * 4 * 4);
            assert_eq!(array_bytes::<8>(deep.as_ptr().cast(), true), 16 * 8 * 2);
            assert_eq!(array_bytes::<8>(sparse.as_ptr().cast(), true), 0);
            assert_eq!(array_bytes::<4>(old.as_ptr().cast(), false), 20);
        }
    }
}
