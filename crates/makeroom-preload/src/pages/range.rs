//! The memory that contains an address of PyTorch's segments: the slot, as without pages, although handles are smaller.

use std::ffi::c_void;

use super::calls::of_address;
use crate::driver::types::{CuResult, DevicePointer, SUCCESS};

/// `CU_POINTER_ATTRIBUTE_RANGE_START_ADDR` and `CU_POINTER_ATTRIBUTE_RANGE_SIZE`.
const RANGE_START: i32 = 11;
const RANGE_SIZE: i32 = 12;

/// Serves `cuMemGetAddressRange`.
///
/// # Safety
///
/// `start` and `bytes` are the program's out-parameters, or null.
pub(crate) unsafe fn address_range(
    start: *mut DevicePointer,
    bytes: *mut usize,
    address: DevicePointer,
) -> Option<CuResult> {
    let (first, size) = of_address(address)?.slot(address)?;
    // SAFETY: non-null pointers are the program's out-parameters for an address and a size.
    unsafe {
        if !start.is_null() {
            start.write_unaligned(first);
        }
        if !bytes.is_null() {
            bytes.write_unaligned(size as usize);
        }
    }
    Some(SUCCESS)
}

/// Serves `cuPointerGetAttribute` for the range attributes; all others are left to the driver.
///
/// # Safety
///
/// `value` is the program's out-parameter for the attribute, or null.
pub(crate) unsafe fn range_attribute(
    value: *mut c_void,
    attribute: i32,
    address: DevicePointer,
) -> Option<CuResult> {
    if !matches!(attribute, RANGE_START | RANGE_SIZE) || value.is_null() {
        return None;
    }
    let (first, size) = of_address(address)?.slot(address)?;
    // SAFETY: not null, so it is the program's out-parameter for an address or a size.
    unsafe { value.cast::<u64>().write_unaligned(if attribute == RANGE_START { first } else { size }) };
    Some(SUCCESS)
}

/// After a successful `cuPointerGetAttributes`: replaces the range of a page with that of its slot.
///
/// # Safety
///
/// The driver has just read `count` attributes and written a value for each.
pub(crate) unsafe fn range_attributes(
    count: u32,
    attributes: *const i32,
    values: *const *mut c_void,
    address: DevicePointer,
) -> Option<CuResult> {
    for index in 0..count as usize {
        // SAFETY: the caller guarantees that the driver has read `count` attributes and as many pointers, and has written
        // each attribute through its pointer.
        unsafe {
            let (attribute, value) =
                (attributes.add(index).read_unaligned(), values.add(index).read_unaligned());
            range_attribute(value, attribute, address);
        }
    }
    None
}
