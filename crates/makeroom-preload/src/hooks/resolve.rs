//! `cuGetProcAddress`: how the CUDA runtime, PyTorch and NCCL find the driver's functions.
//!
//! The driver resolves the symbol with the caller's own version and flags, because these select the variant (`_v2`,
//! `_ptsz`). If the address it returns is that of a function in the table, the hook's address replaces it. So a
//! caller never gets a variant with parameters other than those it expects.

use std::ffi::{CStr, c_char, c_void};

use super::table;
use crate::driver::done::Done;
use crate::driver::function::Function;
use crate::driver::real;
use crate::notices::{Notice, raise};

/// Replaces the function that the driver returned with its hook.
///
/// # Safety
///
/// The arguments are those of a `cuGetProcAddress` call that returned `done`.
pub(crate) unsafe fn replace(symbol: *const c_char, place: *mut *mut c_void, done: Done) {
    if !done.is_ok() || symbol.is_null() || place.is_null() {
        return;
    }
    // SAFETY: the call succeeded, so `place` is valid and filled.
    let found = unsafe { *place };
    if found.is_null() {
        return;
    }
    if let Some(function) = real::function_at(found) {
        // SAFETY: as above; the hook has the signature of the function it replaces.
        unsafe { *place = table::hook(function) };
        return;
    }
    // SAFETY: the call succeeded, so the symbol is a NUL-terminated name.
    let name = unsafe { CStr::from_ptr(symbol) };
    if Function::named(name).is_some() && !table::is_hook(found) {
        raise(Notice::UnknownAddress);
    }
}
