//! `cuGetProcAddress`: the way by which the CUDA runtime, PyTorch and NCCL find the driver's functions.
//!
//! The driver is asked with the caller's own version and flags, because these decide which form of a function (`_v2`,
//! `_ptsz`) is meant. If the address it answers is that of a function in the table, the hook's address takes its
//! place. So a caller never gets a form with other parameters than it asked for.

use std::ffi::{CStr, c_char, c_void};

use super::call::Done;
use super::table::Function;
use crate::driver::real;
use crate::notices::{Notice, raise};

/// Puts the hook into the place of the function that the driver answered.
///
/// # Safety
///
/// The arguments are those of a call of `cuGetProcAddress` that ended so.
pub(crate) unsafe fn replace(symbol: *const c_char, place: *mut *mut c_void, done: Done) {
    if !done.is_ok() || symbol.is_null() || place.is_null() {
        return;
    }
    // SAFETY: the driver succeeded, so the place is valid and holds its answer.
    let found = unsafe { *place };
    if found.is_null() {
        return;
    }
    if let Some(function) = real::function_at(found) {
        // SAFETY: as above; the hook has the signature of the function it replaces.
        unsafe { *place = function.hook() };
        return;
    }
    // SAFETY: the driver succeeded, so the symbol is a name that ends in a zero byte.
    let name = unsafe { CStr::from_ptr(symbol) };
    if Function::named(name).is_some() && Function::of_hook(found).is_none() {
        raise(Notice::UnknownAddress);
    }
}
