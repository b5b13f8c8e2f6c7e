//! Queries NVML for a device's usage: by all processes, and by this one.
//!
//! The latter is what counts, but is not always available: in a container the driver may list processes by the host's
//! PIDs, and under MPS and on some cards it lists them without figures. [`contexts`](super::contexts) decides which
//! figure to use.
//!
//! Without a limit the library is not opened. Each query is one call, with the process list in a stack buffer: inside
//! another program this must not retry or allocate.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

use crate::driver::devices;
use crate::lookup;

pub(super) const SUCCESS: i32 = 0;
/// The first version of the memory query.
pub(super) const FIRST: &CStr = c"nvmlDeviceGetMemoryInfo";
const LIBRARY: &CStr = c"libnvidia-ml.so.1";
/// Both versions write the same structure.
const LISTS: [&CStr; 2] =
    [c"nvmlDeviceGetComputeRunningProcesses_v3", c"nvmlDeviceGetComputeRunningProcesses_v2"];
/// Processes per device. With more, the list counts as unavailable.
const MOST_PROCESSES: usize = 128;
/// `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: u64 = u64::MAX;

/// `nvmlMemory_t`: `total = free + used`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Memory {
    pub(super) total: u64,
    pub(super) free: u64,
    pub(super) used: u64,
}

/// `nvmlProcessInfo_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Process {
    id: u32,
    used: u64,
    instance: u32,
    compute_instance: u32,
}

/// A device's usage, as far as NVML reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// By all processes.
    pub(super) by_all: Option<u64>,
    /// By this one: 0 if a complete list does not contain it, `None` without a list or a figure.
    pub(super) by_own: Option<u64>,
}

/// NVML, opened by this library.
struct Opened(*mut c_void);

// SAFETY: a loader handle, valid on any thread.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

static OPENED: OnceLock<Option<Opened>> = OnceLock::new();

/// Opens and initializes the library, once.
pub(super) fn opened() -> Option<*mut c_void> {
    let open = || {
        // SAFETY: the name is NUL-terminated; the user asked for a limit, so loading NVML is permitted.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        let start = lookup::real(library, c"nvmlInit_v2");
        // SAFETY: NVML's function of this name has no parameters.
        let start =
            unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn() -> i32>>(start) }?;
        // SAFETY: NVML counts its initializations; this one is never undone.
        (unsafe { start() } == SUCCESS).then_some(Opened(library))
    };
    OPENED.get_or_init(open).as_ref().map(|opened| opened.0)
}

/// A device's current usage.
pub(super) fn used(device: u8) -> Used {
    let Some((library, handle)) = opened().and_then(|library| Some((library, handle(library, device)?)))
    else {
        return Used::default();
    };
    Used { by_all: by_all(library, handle), by_own: by_own(library, handle) }
}

fn handle(library: *mut c_void, device: u8) -> Option<*mut c_void> {
    type ByUuid = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> i32;
    let uuid = CString::new(devices::spell_uuid(devices::known(device)?.uuid?)).ok()?;
    let ask = lookup::real(library, c"nvmlDeviceGetHandleByUUID");
    // SAFETY: NVML's function of this name has this signature.
    let ask = unsafe { std::mem::transmute::<*mut c_void, Option<ByUuid>>(ask) }?;
    let mut handle = std::ptr::null_mut();
    // SAFETY: a NUL-terminated name, and a valid out-parameter.
    (unsafe { ask(uuid.as_ptr(), &raw mut handle) } == SUCCESS).then_some(handle)
}

fn by_all(library: *mut c_void, handle: *mut c_void) -> Option<u64> {
    type Info = unsafe extern "C" fn(*mut c_void, *mut Memory) -> i32;
    // SAFETY: NVML's function of this name has this signature.
    let ask = unsafe { std::mem::transmute::<*mut c_void, Option<Info>>(lookup::real(library, FIRST)) }?;
    let mut memory = Memory::default();
    // SAFETY: NVML's own handle and a valid out-parameter.
    (unsafe { ask(handle, &raw mut memory) } == SUCCESS).then_some(memory.used)
}

fn by_own(library: *mut c_void, handle: *mut c_void) -> Option<u64> {
    type List = unsafe extern "C" fn(*mut c_void, *mut u32, *mut Process) -> i32;
    let ask = LISTS.iter().map(|name| lookup::real(library, name)).find(|found| !found.is_null())?;
    // SAFETY: NVML's functions of these names have this signature.
    let ask = unsafe { std::mem::transmute::<*mut c_void, Option<List>>(ask) }?;
    let mut processes = [Process::default(); MOST_PROCESSES];
    let mut count = MOST_PROCESSES as u32;
    // SAFETY: NVML's own handle, and a buffer of the stated length.
    if unsafe { ask(handle, &raw mut count, processes.as_mut_ptr()) } != SUCCESS {
        return None;
    }
    own_share(processes.get(..count as usize)?, std::process::id())
}

/// Usage of one process in a list, summed over all partitions of a device.
fn own_share(processes: &[Process], id: u32) -> Option<u64> {
    let own = processes.iter().filter(|process| process.id == id);
    own.map(|process| Some(process.used).filter(|&used| used != NOT_AVAILABLE)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_with_its_figure_or_not_at_all() {
        let row = |id, used| Process { id, used, instance: u32::MAX, compute_instance: u32::MAX };
        let rows = [row(7, 5 << 20), row(9, 3 << 20), row(9, 1 << 20), row(11, NOT_AVAILABLE)];
        assert_eq!(own_share(&rows, 9), Some(4 << 20));
        assert_eq!(own_share(&rows, 8), Some(0));
        assert_eq!(own_share(&rows, 11), None);
        assert_eq!(size_of::<Process>(), 24);
    }
}
