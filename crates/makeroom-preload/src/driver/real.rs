//! Where the driver's own functions are.
//!
//! Addresses are learned from the library that the program itself found: when `dlsym` is asked for one name of the
//! table, all names are looked up in the same library. A program that is linked with `-lcuda` never asks; then the
//! libraries behind this one are searched, and at last a `libcuda.so.1` that is already loaded. The recorder never
//! loads a driver.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::types::{CuResult, Device, Handle};
use crate::hooks::table::{COUNT, Function};
use crate::{lookup, state};

static HOOKED: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(std::ptr::null_mut()) }; COUNT];

/// The driver's function behind a hook.
#[inline]
pub(crate) fn address(function: Function) -> Option<*mut c_void> {
    let known = HOOKED.get(function as usize)?.load(Ordering::Acquire);
    if known.is_null() { search(function) } else { Some(known) }
}

#[cold]
fn search(function: Function) -> Option<*mut c_void> {
    let name = function.name();
    let behind = lookup::real(libc::RTLD_NEXT, name);
    if !behind.is_null() {
        learn(libc::RTLD_NEXT);
        return Some(behind);
    }
    let library = lookup::loaded(c"libcuda.so.1")?;
    let found = lookup::real(library, name);
    if found.is_null() || Function::of_hook(found).is_some() {
        return None;
    }
    learn(library);
    Some(found)
}

/// Looks all functions up in a library.
fn learn(library: *mut c_void) {
    for &function in Function::ALL {
        let found = lookup::real(library, function.name());
        if let Some(place) = HOOKED.get(function as usize)
            && !found.is_null()
            && Function::of_hook(found).is_none()
        {
            place.store(found, Ordering::Release);
        }
    }
    for (place, name) in QUERIES {
        let found = lookup::real(library, name);
        if !found.is_null() {
            place.store(found, Ordering::Release);
        }
    }
}

/// Whether the hook may stand for this address: it is the driver's function that the hook calls. If none is known yet
/// it becomes that; a second driver in the same process is left alone.
pub(crate) fn adopt(function: Function, found: *mut c_void, library: *mut c_void) -> bool {
    let Some(place) = HOOKED.get(function as usize) else { return false };
    let known = place.load(Ordering::Acquire);
    if known != found && (known.is_null() || !state::has_started()) {
        // Before the first call the program may close the driver and open it elsewhere; afterwards it is held.
        learn(library);
    }
    place.load(Ordering::Acquire) == found
}

/// The hooked function that lies at an address of the driver.
pub(crate) fn function_at(address: *mut c_void) -> Option<Function> {
    let index = HOOKED.iter().position(|place| place.load(Ordering::Relaxed) == address)?;
    Function::ALL.get(index).copied()
}

macro_rules! queries {
    ($($(#[$description:meta])* $name:ident = $symbol:literal ($($type:ty),*);)*) => {
        #[allow(non_upper_case_globals, reason = "each is named after the function that reads it")]
        mod places {
            use super::{AtomicPtr, c_void};
            $(pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());)*
        }

        static QUERIES: &[(&AtomicPtr<c_void>, &CStr)] = &[$((&places::$name, $symbol)),*];

        $(
            $(#[$description])*
            pub(crate) fn $name() -> Option<unsafe extern "C" fn($($type),*) -> CuResult> {
                let address = places::$name.load(Ordering::Acquire);
                // SAFETY: the address is that of the driver's function of this name, which has this signature.
                (!address.is_null()).then(|| unsafe { std::mem::transmute(address) })
            }
        )*
    };
}

queries! {
    /// The calling thread's context.
    current_context = c"cuCtxGetCurrent" (*mut Handle);
    /// Makes a context the calling thread's.
    push_context = c"cuCtxPushCurrent_v2" (Handle);
    /// Makes the one before current again.
    pop_context = c"cuCtxPopCurrent_v2" (*mut Handle);
    /// The context of a stream.
    stream_context = c"cuStreamGetCtx" (Handle, *mut Handle);
    /// The device of the calling thread's context.
    current_device = c"cuCtxGetDevice" (*mut Device);
    /// Free and total memory of the current device.
    memory_info = c"cuMemGetInfo_v2" (*mut usize, *mut usize);
    /// Makes a context the calling thread's.
    set_context = c"cuCtxSetCurrent" (Handle);
    /// The flags of a device's primary context, and whether it is there.
    primary_state = c"cuDevicePrimaryCtxGetState" (Device, *mut u32, *mut i32);
    /// A device's memory.
    total_memory = c"cuDeviceTotalMem_v2" (*mut usize, Device);
    /// A device's name.
    device_name = c"cuDeviceGetName" (*mut u8, i32, Device);
    /// A device's identity.
    device_uuid = c"cuDeviceGetUuid_v2" (*mut [u8; 16], Device);
    /// Exchanges how the calling thread's calls behave while a stream is captured.
    exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode" (*mut i32);
    /// What graphs have taken of a device.
    graph_memory = c"cuDeviceGetGraphMemAttribute" (Device, i32, *mut u64);
    /// The pool that a device always has.
    default_pool = c"cuDeviceGetDefaultMemPool" (*mut Handle, Device);
    /// A figure of a pool; those asked for are words.
    pool_attribute = c"cuMemPoolGetAttribute" (Handle, i32, *mut u64);
    /// A kernel's name.
    function_name = c"cuFuncGetName" (*mut *const libc::c_char, Handle);
    /// The name of a kernel that no context has loaded yet; the runtime launches these as functions.
    kernel_name = c"cuKernelGetName" (*mut *const libc::c_char, Handle);
}
