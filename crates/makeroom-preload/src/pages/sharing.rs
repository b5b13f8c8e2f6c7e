//! Calls after which other code knows physical memory by more than its address: it must not move anymore.

use std::ffi::c_void;

use super::calls::{of_address, of_token};
use crate::driver::function::Function;
use crate::driver::real;
use crate::driver::types::{CuResult, DevicePointer};
use crate::notices::{Notice, warn_once};

/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: CuResult = 801;

/// Memory under addresses gets a second name; the driver serves the call.
pub(crate) fn pin(address: DevicePointer, bytes: usize) {
    super::serve(|| {
        of_address(address)?.pin(address, bytes as u64);
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

/// Serves `cuMulticastBindMem` of a token: the driver does not know it.
pub(crate) fn binds(handle: u64) -> Option<CuResult> {
    of_token(handle).map(|_| not_shared())
}
