//! The exported `dlsym`, `dlvsym` and `dlopen`.
//!
//! All depend on their caller: `dlsym(RTLD_NEXT)` searches after the caller's library, `dlopen` uses the search paths
//! of the caller's library. So each export is a few instructions that inspect the arguments and then jump to the real
//! function with the caller's return address in place.
//!
//! `dlsym` returns a hook only for an exact name in the table, and only if the program would have got the driver's
//! function. Without a driver the lookup fails, as it would without this library. No lock is taken.
//!
//! Another preloaded library may hook `dlsym` too. If it comes first, it calls `dlvsym` for the next `dlsym` with the
//! C library's version, which would skip this library, whose exports have no version. In that case `dlvsym` returns
//! this library's `dlsym`.

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(test)))]
mod shims;

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::table;
use crate::driver::function::Function;
use crate::driver::real as driver;
use crate::limit::management;
use crate::lookup::{self, real, real_dlsym};
use crate::notices::{Notice, raise};
use crate::state;

static REAL_DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Result for the shim: continue to the real function.
const GO_ON: usize = 0;
/// Result for the shim: return null.
const ANSWER_NULL: usize = 1;

/// Decides for the exported `dlsym`: [`GO_ON`], [`ANSWER_NULL`], or the address to return.
extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> usize {
    if real_dlsym().is_none() {
        return ANSWER_NULL;
    }
    if name.is_null() || state::steps_aside() || handle == libc::RTLD_NEXT {
        return GO_ON;
    }
    // SAFETY: the program passes a NUL-terminated name, as `dlsym` requires.
    let name = unsafe { CStr::from_ptr(name) };
    if management::is_answered(name) {
        return choose_management(handle, name);
    }
    let Some(function) = Function::named(name) else { return GO_ON };
    if handle == libc::RTLD_DEFAULT {
        // The search would find this library's own export, driver or not: search after it.
        let found = real(libc::RTLD_NEXT, name);
        return if found.is_null() { ANSWER_NULL } else { answer(function, found, libc::RTLD_NEXT) };
    }
    let found = real(handle, name);
    if found.is_null() { GO_ON } else { answer(function, found, handle) }
}

/// [`choose`] for the NVML functions that are replaced under a limit.
fn choose_management(handle: *mut c_void, name: &CStr) -> usize {
    let behind = if handle == libc::RTLD_DEFAULT { libc::RTLD_NEXT } else { handle };
    let found = real(behind, name);
    if found.is_null() {
        return if handle == libc::RTLD_DEFAULT { ANSWER_NULL } else { GO_ON };
    }
    management::answer(name, found).unwrap_or(found) as usize
}

fn answer(function: Function, found: *mut c_void, library: *mut c_void) -> usize {
    if table::is_hook(found) || !driver::remember(function, found, library, state::has_started()) {
        return found as usize;
    }
    // End with a successful call, so that the program's `dlerror` does not return an error from a lookup above.
    real(library, function.name());
    table::hook(function) as usize
}

/// Decides for the exported `dlvsym`: a hooking library that comes before this one gets this one's `dlsym`.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(test)))]
extern "C" fn choose_version(
    handle: *mut c_void,
    name: *const c_char,
    _version: *const c_char,
    caller: usize,
) -> usize {
    if lookup::real_dlvsym().is_none() {
        return ANSWER_NULL;
    }
    if handle != libc::RTLD_NEXT || name.is_null() || state::steps_aside() {
        return GO_ON;
    }
    // SAFETY: the program passes a NUL-terminated name, as `dlvsym` requires.
    let is_dlsym = unsafe { CStr::from_ptr(name) } == c"dlsym";
    let own = shims::own_dlsym as *const () as usize;
    if is_dlsym && lookup::is_before(caller, own) { own } else { GO_ON }
}

/// Runs before the real `dlopen`.
extern "C" fn look_at_dlopen(_path: *const c_char, flags: i32) -> usize {
    if flags & libc::RTLD_DEEPBIND != 0 {
        raise(Notice::DeepBind);
    }
    if REAL_DLOPEN.load(Ordering::Acquire).is_null() {
        REAL_DLOPEN.store(real(libc::RTLD_NEXT, c"dlopen"), Ordering::Release);
    }
    if REAL_DLOPEN.load(Ordering::Acquire).is_null() { ANSWER_NULL } else { GO_ON }
}
