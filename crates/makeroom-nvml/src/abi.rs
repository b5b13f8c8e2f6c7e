//! The structures and constants of `nvml.h`, which are the same in NVML 11 to 13 except where stated.
//!
//! The assertions check the sizes and offsets that a C compiler computes from NVIDIA's header for 64-bit Linux. The
//! software NVML (`makeroom-simnvml`) has its own declarations, and tests of this crate run against it.

/// An `nvmlDevice_t`, an opaque pointer. It is passed back unchanged and is not tied to a thread.
pub(crate) type Handle = usize;

/// `NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE`.
pub(crate) const DRIVER_VERSION_SIZE: usize = 80;
/// `NVML_DEVICE_NAME_V2_BUFFER_SIZE`.
pub(crate) const NAME_SIZE: usize = 96;
/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
pub(crate) const UUID_SIZE: usize = 96;
/// `NVML_VALUE_NOT_AVAILABLE` in a 64-bit field.
pub(crate) const NOT_AVAILABLE: u64 = u64::MAX;

/// `nvmlMemory_v2_t`. `total = reserved + used + free`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryInfo {
    version: u32,
    pub(crate) total: u64,
    pub(crate) reserved: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

impl MemoryInfo {
    /// An empty structure with the version that NVML checks: size and version number in one word.
    pub(crate) const EMPTY: Self =
        Self { version: size_of::<Self>() as u32 | 2 << 24, total: 0, reserved: 0, free: 0, used: 0 };
}

/// `nvmlPciInfo_t`, for `nvmlDeviceGetPciInfo_v3`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PciInfo {
    short_bus_id: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    device_id: u32,
    subsystem_id: u32,
    pub(crate) bus_id: [u8; 32],
}

/// `nvmlAccountingStats_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AccountingStats {
    gpu_utilization: u32,
    memory_utilization: u32,
    pub(crate) peak_memory: u64,
    time: u64,
    start_time: u64,
    is_running: u32,
    reserved: [u32; 5],
}

/// `nvmlProcessInfo_v2_t`, and `nvmlProcessInfo_t` of the functions with the suffix `_v3`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessInfo {
    pub(crate) pid: u32,
    pub(crate) used_memory: u64,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
}

/// `nvmlProcessInfo_t` of the functions with the suffix `_v3`, in drivers from 535.43 to 535.86 only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongProcessInfo {
    pub(crate) common: ProcessInfo,
    pub(crate) protected_memory: u64,
}

const _: () = assert!(size_of::<MemoryInfo>() == 40 && MemoryInfo::EMPTY.version == 0x0200_0028);
const _: () = assert!(std::mem::offset_of!(MemoryInfo, total) == 8);
const _: () = assert!(std::mem::offset_of!(MemoryInfo, used) == 32);
const _: () = assert!(size_of::<PciInfo>() == 68 && align_of::<PciInfo>() == 4);
const _: () = assert!(std::mem::offset_of!(PciInfo, bus_id) == 36);
const _: () = assert!(size_of::<AccountingStats>() == 56);
const _: () = assert!(std::mem::offset_of!(AccountingStats, peak_memory) == 8);
const _: () = assert!(size_of::<ProcessInfo>() == 24);
const _: () = assert!(std::mem::offset_of!(ProcessInfo, used_memory) == 8);
const _: () = assert!(size_of::<LongProcessInfo>() == 32);
const _: () = assert!(size_of::<Handle>() == size_of::<*const u8>());
