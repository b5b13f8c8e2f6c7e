//! The allocation that contains an address: `cuMemGetAddressRange`, and the same query as pointer attributes.
//!
//! The driver would return the pool's mapping, pages that hold many allocations, and a program that fills "its" range
//! would overwrite the others. Memory that the pool spilled to the host is included; every other address is left to
//! the driver.

use std::ffi::c_void;

use makeroom_core::Address;

use super::calls::{INVALID_VALUE, owner};
use super::devices::DevicePool;
use crate::driver::place;
use crate::driver::types::{CuResult, DevicePointer, SUCCESS};

/// `CUDA_ERROR_NOT_FOUND`: the driver's result for an address without an allocation.
const NOT_FOUND: CuResult = 500;
/// `CU_POINTER_ATTRIBUTE_RANGE_START_ADDR` and `CU_POINTER_ATTRIBUTE_RANGE_SIZE`.
const RANGE_START: i32 = 11;
const RANGE_SIZE: i32 = 12;

/// An allocation's first address and its size.
type Range = (u64, u64);

/// The live allocation that contains an address of a pool.
fn allocation(pool: &DevicePool, address: DevicePointer) -> Option<Range> {
    let host = pool.host.as_ref().and_then(|host| host.block_around(Address(address)));
    let (first, size) = host.or_else(|| pool.pool.block_around(Address(address)))?;
    Some((first.0, size))
}

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
    let pool = owner(address)?;
    // Without a context the driver fails, whatever the address.
    if place::current().context == 0 {
        return None;
    }
    let found = allocation(pool, address);
    // The driver writes zeros if it finds nothing.
    let (first, size) = found.unwrap_or_default();
    // SAFETY: non-null pointers are the program's out-parameters for an address and a size.
    unsafe {
        if !start.is_null() {
            start.write_unaligned(first);
        }
        if !bytes.is_null() {
            bytes.write_unaligned(size as usize);
        }
    }
    Some(if found.is_some() { SUCCESS } else { NOT_FOUND })
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
    let Some((first, size)) = allocation(owner(address)?, address) else { return Some(INVALID_VALUE) };
    // SAFETY: not null, so it is the program's out-parameter for an address or a size.
    unsafe { value.cast::<u64>().write_unaligned(if attribute == RANGE_START { first } else { size }) };
    Some(SUCCESS)
}

/// After a successful `cuPointerGetAttributes`: replaces the mapping's range with the allocation's.
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
        // SAFETY: the caller guarantees that the driver has read `count` attributes and as many pointers.
        let (attribute, value) =
            unsafe { (attributes.add(index).read_unaligned(), values.add(index).read_unaligned()) };
        // SAFETY: the driver has written this attribute through this pointer.
        let served = unsafe { range_attribute(value, attribute, address) };
        if served == Some(INVALID_VALUE) {
            // SAFETY: as above; only an address or a size gets here, and the pointer is not null.
            unsafe { value.cast::<u64>().write_unaligned(0) };
        }
    }
    None
}
