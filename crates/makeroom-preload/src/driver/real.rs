//! Write-once table of atomic pointers: the addresses of the driver's own functions.
//!
//! They are found in the library that the program itself opened: when it looks up one name of the table with `dlsym`,
//! all names are looked up in the same library. A program linked with `-lcuda` never calls `dlsym`; then the
//! libraries after this one are searched, and finally a `libcuda.so.1` that is already loaded. The recorder never
//! loads a driver.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::function::{COUNT, Function};
use super::types::{CuResult, Device, Handle};
use crate::lookup;

static HOOKED: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(std::ptr::null_mut()) }; COUNT];

/// The driver's function that a hook calls.
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
    if found.is_null() || lookup::is_in_this_library(found) {
        return None;
    }
    learn(library);
    Some(found)
}

/// Looks up all functions in a library.
fn learn(library: *mut c_void) {
    for &function in Function::ALL {
        let found = lookup::real(library, function.name());
        if let Some(place) = HOOKED.get(function as usize)
            && !found.is_null()
            && !lookup::is_in_this_library(found)
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

/// Whether the hook may replace this address: it must be the driver's function that the hook calls. If none is known
/// yet, this one is taken; a second driver in the same process is not hooked. `is_held` is whether the driver stays open.
pub(crate) fn remember(function: Function, found: *mut c_void, library: *mut c_void, is_held: bool) -> bool {
    let Some(place) = HOOKED.get(function as usize) else { return false };
    let known = place.load(Ordering::Acquire);
    if known != found && (known.is_null() || !is_held) {
        // Before the first call the program may close the driver and open another copy; after it the driver is held.
        learn(library);
    }
    place.load(Ordering::Acquire) == found
}

/// The hooked function at an address in the driver.
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
                // SAFETY: the address is the driver's function of this name, which has this signature.
                (!address.is_null()).then(|| unsafe { std::mem::transmute(address) })
            }
        )*
    };
}

queries! {
    /// The calling thread's current context.
    current_context = c"cuCtxGetCurrent" (*mut Handle);
    /// Pushes a context and makes it current.
    push_context = c"cuCtxPushCurrent_v2" (Handle);
    /// Pops the current context.
    pop_context = c"cuCtxPopCurrent_v2" (*mut Handle);
    /// The context of a stream.
    stream_context = c"cuStreamGetCtx" (Handle, *mut Handle);
    /// The device of the current context.
    current_device = c"cuCtxGetDevice" (*mut Device);
    /// Free and total memory of the current device.
    memory_info = c"cuMemGetInfo_v2" (*mut usize, *mut usize);
    /// Makes a context current.
    set_context = c"cuCtxSetCurrent" (Handle);
    /// Flags of a device's primary context, and whether it is active.
    primary_state = c"cuDevicePrimaryCtxGetState" (Device, *mut u32, *mut i32);
    /// Number of devices.
    device_count = c"cuDeviceGetCount" (*mut i32);
    /// Total memory of a device.
    total_memory = c"cuDeviceTotalMem_v2" (*mut usize, Device);
    /// A device's name.
    device_name = c"cuDeviceGetName" (*mut u8, i32, Device);
    /// A device's UUID.
    device_uuid = c"cuDeviceGetUuid_v2" (*mut [u8; 16], Device);
    /// Exchanges the calling thread's stream capture mode.
    exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode" (*mut i32);
    /// Memory that graphs hold on a device.
    graph_memory = c"cuDeviceGetGraphMemAttribute" (Device, i32, *mut u64);
    /// A device's default memory pool.
    default_pool = c"cuDeviceGetDefaultMemPool" (*mut Handle, Device);
    /// An attribute of a memory pool; those used here are 64-bit.
    pool_attribute = c"cuMemPoolGetAttribute" (Handle, i32, *mut u64);
    /// A kernel's name.
    function_name = c"cuFuncGetName" (*mut *const libc::c_char, Handle);
    /// The name of a kernel not yet loaded in any context; the runtime launches these as functions.
    kernel_name = c"cuKernelGetName" (*mut *const libc::c_char, Handle);
}
