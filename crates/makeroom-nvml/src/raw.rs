//! The functions of NVML that this crate calls, in one table: exported name and arguments.
//!
//! Names are exact: `nvmlDeviceGetPciInfo_v3` is one function with one signature in every version of NVML that has it, while
//! the header redefines the name without a suffix from version to version. A missing function is an error when it is
//! called, not at load time, so an old driver still reports everything else.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use crate::abi::{AccountingStats, Handle, MemoryInfo, PciInfo, ProcessInfo};
use crate::error::{Code, Error, Result};

macro_rules! functions {
    ($($(#[$description:meta])* $name:ident = $symbol:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {
        /// NVML's functions; `None` for those that the library lacks.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Functions {
            $(pub(crate) $name: Option<unsafe extern "C" fn($($kind),*) -> u32>,)*
        }

        impl Functions {
            /// Looks up every function once.
            ///
            /// # Safety
            ///
            /// `find` must return the address of NVML's function with that name, which must stay valid as long as the
            /// result is used.
            pub(crate) unsafe fn resolve(mut find: impl FnMut(&CStr) -> Option<NonNull<c_void>>) -> Self {
                Self {
                    $($name: find(name_of(concat!(stringify!($symbol), "\0"))).map(|address| {
                        // SAFETY: the caller guarantees that this is the function of that name, which has this
                        // signature.
                        unsafe {
                            std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($kind),*) -> u32>(address)
                        }
                    }),)*
                }
            }

            $(
                $(#[$description])*
                ///
                /// # Safety
                ///
                /// Pointers must be valid for the accesses of the function, and handles must come from NVML.
                pub(crate) unsafe fn $name(&self, $($argument: $kind),*) -> Result<()> {
                    let Some(function) = self.$name else {
                        return Err(Error::Missing { function: stringify!($symbol) });
                    };
                    // SAFETY: the caller guarantees the arguments, and the caller of `resolve` the function.
                    match unsafe { function($($argument),*) } {
                        0 => Ok(()),
                        code => Err(Error::Failed { function: stringify!($symbol), code: Code(code) }),
                    }
                }
            )*
        }

        /// For tests: the exported names, and a library in which every function fails.
        #[cfg(test)]
        impl Functions {
            pub(crate) const NAMES: &[&str] = &[$(stringify!($symbol)),*];

            pub(crate) fn failing() -> Self {
                Self {
                    $($name: {
                        unsafe extern "C" fn fail($(_: $kind),*) -> u32 {
                            crate::tests::FAILURE
                        }
                        Some(fail)
                    },)*
                }
            }
        }
    };
}

/// The NUL-terminated name as a `CStr`.
fn name_of(text: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or_default()
}

functions! {
    /// Initializes NVML, which counts the calls.
    init = nvmlInit_v2();
    /// Shuts NVML down after as many calls as initializations.
    shutdown = nvmlShutdown();
    /// The driver's version.
    driver_version = nvmlSystemGetDriverVersion(version: *mut c_char, length: u32);
    /// The CUDA version that the driver supports, 12040 for 12.4.
    cuda_version = nvmlSystemGetCudaDriverVersion_v2(version: *mut i32);

    /// The number of GPUs.
    device_count = nvmlDeviceGetCount_v2(count: *mut u32);
    /// The GPU with the given index.
    device_by_index = nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut Handle);
    /// A device's product name.
    name = nvmlDeviceGetName(device: Handle, name: *mut c_char, length: u32);
    /// A device's UUID.
    uuid = nvmlDeviceGetUUID(device: Handle, uuid: *mut c_char, length: u32);
    /// A device's memory. The version in the structure is an input.
    memory_info = nvmlDeviceGetMemoryInfo_v2(device: Handle, memory: *mut MemoryInfo);
    /// A GPU's location on the PCI bus.
    pci_info = nvmlDeviceGetPciInfo_v3(device: Handle, place: *mut PciInfo);
    /// The number of a GPU's device file.
    minor_number = nvmlDeviceGetMinorNumber(device: Handle, number: *mut u32);
    /// Whether a display is initialized on a GPU.
    display_active = nvmlDeviceGetDisplayActive(device: Handle, is_active: *mut u32);
    /// Whether the driver keeps a GPU initialized when no process uses it.
    persistence_mode = nvmlDeviceGetPersistenceMode(device: Handle, mode: *mut u32);
    /// How many processes may use a GPU.
    compute_mode = nvmlDeviceGetComputeMode(device: Handle, mode: *mut u32);

    /// Whether accounting is on.
    accounting_mode = nvmlDeviceGetAccountingMode(device: Handle, mode: *mut u32);
    /// Accounting statistics of a process.
    accounting_stats = nvmlDeviceGetAccountingStats(device: Handle, pid: u32, stats: *mut AccountingStats);

    /// Whether a GPU is divided into MIG instances, and whether it will be after a reset.
    mig_mode = nvmlDeviceGetMigMode(device: Handle, current: *mut u32, pending: *mut u32);
    /// Maximum number of MIG instances of a GPU.
    mig_device_count = nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: *mut u32);
    /// The MIG instance with the given index.
    mig_device_by_index = nvmlDeviceGetMigDeviceHandleByIndex(device: Handle, index: u32, instance: *mut Handle);

    /// Processes with a compute context.
    compute_processes_v3 = nvmlDeviceGetComputeRunningProcesses_v3(
        device: Handle, count: *mut u32, processes: *mut ProcessInfo,
    );
    /// The same in drivers before 510.
    compute_processes_v2 = nvmlDeviceGetComputeRunningProcesses_v2(
        device: Handle, count: *mut u32, processes: *mut ProcessInfo,
    );
    /// Processes with a graphics context.
    graphics_processes_v3 = nvmlDeviceGetGraphicsRunningProcesses_v3(
        device: Handle, count: *mut u32, processes: *mut ProcessInfo,
    );
    /// The same in drivers before 510.
    graphics_processes_v2 = nvmlDeviceGetGraphicsRunningProcesses_v2(
        device: Handle, count: *mut u32, processes: *mut ProcessInfo,
    );
    /// MPS clients.
    mps_processes_v3 = nvmlDeviceGetMPSComputeRunningProcesses_v3(
        device: Handle, count: *mut u32, processes: *mut ProcessInfo,
    );
}
