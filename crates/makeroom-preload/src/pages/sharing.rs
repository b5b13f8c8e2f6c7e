//! Calls after which other code knows physical memory by more than its address: it must not move anymore.

use std::ffi::c_void;

use makeroom_cuda::{AllocationProperties, Code};

use super::calls::{code, of_address, of_token, where_is};
use crate::driver::function::Function;
use crate::driver::real;
use crate::driver::types::{CuResult, DevicePointer, SUCCESS};
use crate::fields::field;
use crate::notices::{Notice, warn_once};

/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: CuResult = 801;

/// Memory under addresses gets a second name; the driver serves the call. Slots become one handle each, as they are without
/// pages, because the driver keeps some properties with the handle. If that fails, their pages stay where they are.
pub(crate) fn pin(address: DevicePointer, bytes: usize) {
    super::serve(|| {
        let pages = of_address(address)?;
        let end = address.saturating_add(bytes.max(1) as u64);
        let mut at = address;
        while at < end {
            let (start, size) = pages.slot(at)?;
            if pages.whole_at(start).is_none() {
                pages.pin(start, size);
            }
            at = start + size;
        }
        None
    });
}

fn not_shared() -> CuResult {
    warn_once(Notice::PagesNotShared);
    NOT_SUPPORTED
}

/// Serves `cuMemExportToShareableHandle` of a token: the other side maps the slot as one handle.
///
/// # Safety
///
/// `place` is the program's out-parameter for this kind of handle.
pub(crate) unsafe fn export(place: *mut c_void, handle: u64, kind: i32, flags: u64) -> Option<CuResult> {
    type Export = unsafe extern "C-unwind" fn(*mut c_void, u64, i32, u64) -> CuResult;
    let pages = of_token(handle)?;
    let Some(whole) = pages.whole(handle) else { return Some(not_shared()) };
    let address = real::address(Function::cuMemExportToShareableHandle)?;
    // SAFETY: the driver's function of this name, which has this signature.
    let real = unsafe { std::mem::transmute::<*mut c_void, Export>(address) };
    // SAFETY: the program's own call, with the handle that stands behind the token.
    Some(unsafe { real(place, whole, kind, flags) })
}

/// Prepares `cuMemRetainAllocationHandle`, which the driver serves once one handle is behind the address.
pub(crate) fn retain(address: DevicePointer) -> Option<CuResult> {
    let pages = of_address(address)?;
    let (start, _) = pages.slot(address)?;
    if pages.whole_at(start).is_some() { None } else { Some(not_shared()) }
}

/// Serves `cuMulticastBindMem` of a token.
///
/// # Safety
///
/// The parameters are the program's.
pub(crate) unsafe fn bind(
    handle: u64,
    offset: usize,
    memory: u64,
    memory_offset: usize,
    bytes: usize,
    flags: u64,
) -> Option<CuResult> {
    type Bind = unsafe extern "C-unwind" fn(u64, usize, u64, usize, usize, u64) -> CuResult;
    let pages = of_token(memory)?;
    let Some(whole) = pages.whole(memory) else { return Some(not_shared()) };
    let address = real::address(Function::cuMulticastBindMem)?;
    // SAFETY: the driver's function of this name, which has this signature.
    let real = unsafe { std::mem::transmute::<*mut c_void, Bind>(address) };
    // SAFETY: the program's own call, with the handle that stands behind the token.
    Some(unsafe { real(handle, offset, whole, memory_offset, bytes, flags) })
}

/// Serves `cuMemGetAllocationPropertiesFromHandle` of a token: those with which PyTorch created it.
///
/// # Safety
///
/// `place` is the program's out-parameter for the properties, or null.
pub(crate) unsafe fn properties(place: *mut c_void, handle: u64) -> Option<CuResult> {
    let found = of_token(handle)?.properties(handle);
    let Some(found) = found.filter(|_| !place.is_null()) else { return Some(code(Err(Code::INVALID_VALUE))) };
    // SAFETY: not null, so it is the program's out-parameter for this structure.
    unsafe { place.cast::<AllocationProperties>().write_unaligned(found) };
    Some(SUCCESS)
}

/// Serves `cuMemGetAccess`: a page without memory has the access that it will have with memory.
///
/// # Safety
///
/// The parameters are the program's; pointers may be null.
pub(crate) unsafe fn access(
    flags: *mut u64,
    location: *const c_void,
    address: DevicePointer,
) -> Option<CuResult> {
    let pages = of_address(address)?;
    if flags.is_null() || location.is_null() {
        return None;
    }
    // SAFETY: not null; the driver reads the same structure.
    let (kind, number) = unsafe { (field::<i32>(location, 0), field::<i32>(location, 4)) };
    let found = pages.access(address, where_is(kind, number)?)?;
    // SAFETY: not null, so it is the program's out-parameter for the flags.
    unsafe { flags.write_unaligned(found as u64) };
    Some(SUCCESS)
}
