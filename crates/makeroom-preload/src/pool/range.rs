//! `cuMemGetAddressRange`: the allocation that an address lies in.
//!
//! The driver would return the pool's mapping, pages in which many allocations lie, and a program that fills "its" range
//! would overwrite the others. Memory that the pool put on the host in place of the device's is the pool's as well;
//! every other address is the driver's to answer for.

use makeroom_core::Address;

use super::calls::owner;
use crate::driver::place;
use crate::driver::types::{CuResult, DevicePointer, SUCCESS};

/// `CUDA_ERROR_NOT_FOUND`: what the driver returns for an address without an allocation.
const NOT_FOUND: CuResult = 500;

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
    let host = pool.host.as_ref().and_then(|host| host.block_around(Address(address)));
    let Some((first, size)) = host.or_else(|| pool.pool.block_around(Address(address))) else {
        return Some(NOT_FOUND);
    };
    // SAFETY: where they are not null they are the program's places for an address and a size.
    unsafe {
        if !start.is_null() {
            start.write_unaligned(first.0);
        }
        if !bytes.is_null() {
            bytes.write_unaligned(size as usize);
        }
    }
    Some(SUCCESS)
}
