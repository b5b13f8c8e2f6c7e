//! The allocation that an address lies in: `cuMemGetAddressRange`, and the same question as attributes of a pointer.
//!
//! The driver would return the pool's mapping, pages in which many allocations lie, and a program that fills "its" range
//! would overwrite the others. Memory that the pool put on the host in place of the device's is the pool's as well;
//! every other address is the driver's to answer for.

use std::ffi::c_void;

use makeroom_core::Address;

use super::calls::{INVALID_VALUE, owner};
use super::devices::DevicePool;
use crate::driver::place;
use crate::driver::types::{CuResult, DevicePointer, SUCCESS};

/// `CUDA_ERROR_NOT_FOUND`: what the driver returns for an address without an allocation.
const NOT_FOUND: CuResult = 500;
/// `CU_POINTER_ATTRIBUTE_RANGE_START_ADDR` and `CU_POINTER_ATTRIBUTE_RANGE_SIZE`.
const RANGE_START: i32 = 11;
const RANGE_SIZE: i32 = 12;

/// An allocation's first address and its size.
type Range = (u64, u64);

/// The live allocation around an address of a pool's.
fn allocation(pool: &DevicePool, address: DevicePointer) -> Option<Range> {
    let host = pool.host.as_ref().and_then(|host| host.block_around(Address(address)));
    let (first, size) = host.or_else(|| pool.pool.block_around(Address(address)))?;
    Some((first.0, size))
}

/// Serves `cuMemGetAddressRange`.
///
/// # Safety
///
/// `start` and `bytes` are the program's places for the answer, or null.
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
    // The driver leaves zeros where it finds nothing.
    let (first, size) = found.unwrap_or_default();
    // SAFETY: where they are not null they are the program's places for an address and a size.
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

/// Serves `cuPointerGetAttribute` for the attributes of the range; all others are the driver's.
///
/// # Safety
///
/// `value` is the program's place for the attribute, or null.
pub(crate) unsafe fn range_attribute(
    value: *mut c_void,
    attribute: i32,
    address: DevicePointer,
) -> Option<CuResult> {
    if !matches!(attribute, RANGE_START | RANGE_SIZE) || value.is_null() {
        return None;
    }
    let Some((first, size)) = allocation(owner(address)?, address) else { return Some(INVALID_VALUE) };
    // SAFETY: not null, so it is the program's place for an address or a size.
    unsafe { value.cast::<u64>().write_unaligned(if attribute == RANGE_START { first } else { size }) };
    Some(SUCCESS)
}

/// After a successful `cuPointerGetAttributes`: puts the allocation's range in place of the mapping's.
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
        // SAFETY: by the caller's word the driver has read as many attributes, and as many places.
        let (attribute, value) =
            unsafe { (attributes.add(index).read_unaligned(), values.add(index).read_unaligned()) };
        // SAFETY: the driver has written this attribute to this place.
        let served = unsafe { range_attribute(value, attribute, address) };
        if served == Some(INVALID_VALUE) {
            // SAFETY: as above; only an address or a size gets here, in a place that is not null.
            unsafe { value.cast::<u64>().write_unaligned(0) };
        }
    }
    None
}
