//! NVML under a limit: memory queries from this process return the figures of a smaller card.
//!
//! Without a limit, NVML's results are unchanged.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::left;
use super::nvml::{self, FIRST, Memory, SUCCESS};
use crate::config::config;
use crate::driver::devices;
use crate::lookup;

const SECOND: &CStr = c"nvmlDeviceGetMemoryInfo_v2";
const LONGEST_UUID: u32 = 96;
/// `NVML_ERROR_FUNCTION_NOT_FOUND`.
const NOT_FOUND: i32 = 13;

/// `nvmlMemory_v2_t`: `total = reserved + free + used`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct MemoryWithReserve {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

static REAL_FIRST: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REAL_SECOND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The replacement for an NVML function that the program looks up, if a limit is set.
pub(crate) fn answer(name: &CStr, found: *mut c_void) -> Option<*mut c_void> {
    config().limit?;
    let (place, own) = match name {
        name if name == FIRST => (&REAL_FIRST, memory_info as *mut c_void),
        name if name == SECOND => (&REAL_SECOND, memory_info_with_reserve as *mut c_void),
        _ => return None,
    };
    if found != own {
        place.store(found, Ordering::Release);
    }
    Some(own)
}

/// Whether this is the name of a replaced function.
pub(crate) fn is_answered(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"nvml") && (name == FIRST || name == SECOND)
}

fn real(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = place.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let found = lookup::real(libc::RTLD_NEXT, name);
    place.store(found, Ordering::Release);
    found
}

/// The device of a handle, if this process uses it.
fn device_of(handle: *mut c_void) -> Option<u8> {
    type Uuid = unsafe extern "C" fn(*mut c_void, *mut c_char, u32) -> i32;
    let ask = lookup::real(nvml::opened()?, c"nvmlDeviceGetUUID");
    // SAFETY: NVML's function of this name has this signature.
    let ask = unsafe { std::mem::transmute::<*mut c_void, Option<Uuid>>(ask) }?;
    let mut text = [0_u8; LONGEST_UUID as usize];
    // SAFETY: the program's own handle, and a buffer of the stated length.
    if unsafe { ask(handle, text.as_mut_ptr().cast(), LONGEST_UUID) } != SUCCESS {
        return None;
    }
    let text = text.split(|&byte| byte == 0).next()?;
    (0..=u8::MAX).find(|&device| {
        devices::known(device)
            .and_then(|known| known.uuid)
            .is_some_and(|uuid| devices::spell_uuid(uuid) == text)
    })
}

/// Total and free memory, reduced to the limit.
fn smaller(handle: *mut c_void, total: u64, free: u64) -> Option<(u64, u64)> {
    let limit = config().limit?;
    let left = device_of(handle).map_or(limit, |device| left(device, limit));
    Some((total.min(limit), free.min(left)))
}

/// `nvmlDeviceGetMemoryInfo`.
#[cfg_attr(not(test), unsafe(export_name = "nvmlDeviceGetMemoryInfo"))]
unsafe extern "C" fn memory_info(handle: *mut c_void, memory: *mut Memory) -> i32 {
    type Info = unsafe extern "C" fn(*mut c_void, *mut Memory) -> i32;
    // SAFETY: NVML's function of this name has this signature.
    let Some(real) = (unsafe { std::mem::transmute::<*mut c_void, Option<Info>>(real(&REAL_FIRST, FIRST)) })
    else {
        return NOT_FOUND;
    };
    // SAFETY: the program's own call, forwarded unchanged.
    let result = unsafe { real(handle, memory) };
    // SAFETY: the call succeeded, so a non-null pointer is valid and filled.
    if let Some(memory) = unsafe { memory.as_mut() }.filter(|_| result == SUCCESS)
        && let Some((total, free)) = smaller(handle, memory.total, memory.free)
    {
        *memory = Memory { total, free, used: total - free };
    }
    result
}

/// `nvmlDeviceGetMemoryInfo_v2`.
#[cfg_attr(not(test), unsafe(export_name = "nvmlDeviceGetMemoryInfo_v2"))]
unsafe extern "C" fn memory_info_with_reserve(handle: *mut c_void, memory: *mut MemoryWithReserve) -> i32 {
    type Info = unsafe extern "C" fn(*mut c_void, *mut MemoryWithReserve) -> i32;
    // SAFETY: NVML's function of this name has this signature.
    let Some(real) =
        (unsafe { std::mem::transmute::<*mut c_void, Option<Info>>(real(&REAL_SECOND, SECOND)) })
    else {
        return NOT_FOUND;
    };
    // SAFETY: the program's own call, forwarded unchanged.
    let result = unsafe { real(handle, memory) };
    // SAFETY: the call succeeded, so a non-null pointer is valid and filled.
    if let Some(memory) = unsafe { memory.as_mut() }.filter(|_| result == SUCCESS)
        && let Some((total, free)) = smaller(handle, memory.total, memory.free)
    {
        *memory = MemoryWithReserve { total, reserved: 0, free, used: total - free, ..*memory };
    }
    result
}
