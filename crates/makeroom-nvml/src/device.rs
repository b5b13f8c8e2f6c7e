//! A GPU, or a MIG instance of one: its properties and its memory.

use crate::abi::{AccountingStats, Handle, MemoryInfo, NAME_SIZE, NOT_AVAILABLE, PciInfo, UUID_SIZE};
use crate::error::{Error, Result};
use crate::library::{Library, bounded, read_text, text_of};
use crate::raw::Functions;

/// Maximum number of MIG instances; a larger count is an error.
const MOST_INSTANCES: u32 = 256;

/// A GPU, or a MIG instance of one.
#[derive(Clone, Copy, Debug)]
pub struct Device<'library> {
    pub(crate) library: &'library Library,
    pub(crate) handle: Handle,
}

/// Memory of a device in bytes: `total = reserved + used + free`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Total memory.
    pub total: u64,
    /// Reserved by the driver.
    pub reserved: u64,
    /// Used, without the reserved part.
    pub used: u64,
    /// Free.
    pub free: u64,
}

/// How many processes may use a GPU; the values are NVML's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeMode {
    /// Any number of processes.
    Default = 0,
    /// One thread. Drivers since CUDA 8 treat it as one process.
    ExclusiveThread = 1,
    /// No processes.
    Prohibited = 2,
    /// One process.
    ExclusiveProcess = 3,
}

/// A function that reads one number from a device.
type ReadNumber = unsafe fn(&Functions, Handle, *mut u32) -> Result<()>;

impl<'library> Device<'library> {
    pub(crate) fn new(library: &'library Library, handle: Handle) -> Self {
        Self { library, handle }
    }

    /// The product name.
    pub fn name(self) -> Result<String> {
        read_text::<NAME_SIZE>(|text, length| {
            // SAFETY: the handle is NVML's, and the buffer has the stated length.
            unsafe { self.library.functions.name(self.handle, text, length) }
        })
    }

    /// `GPU-…`, or `MIG-…` for an instance.
    pub fn uuid(self) -> Result<String> {
        read_text::<UUID_SIZE>(|text, length| {
            // SAFETY: as above.
            unsafe { self.library.functions.uuid(self.handle, text, length) }
        })
    }

    /// The memory. Drivers before 510 do not distinguish reserved from used memory and lack this function.
    pub fn memory(self) -> Result<Memory> {
        let mut info = MemoryInfo::EMPTY;
        // SAFETY: the handle is NVML's, and the out-parameter is valid and has the version that it states.
        unsafe { self.library.functions.memory_info(self.handle, &raw mut info) }?;
        Ok(Memory { total: info.total, reserved: info.reserved, used: info.used, free: info.free })
    }

    /// PCI bus ID of a GPU, such as `00000000:17:00.0`.
    pub fn bus_id(self) -> Result<String> {
        let mut place = PciInfo::default();
        // SAFETY: the handle is NVML's, and the out-parameter is valid.
        unsafe { self.library.functions.pci_info(self.handle, &raw mut place) }?;
        text_of(&place.bus_id)
    }

    /// The number in the name of a GPU's device file, `/dev/nvidiaN`.
    pub fn minor_number(self) -> Result<u32> {
        self.number(Functions::minor_number)
    }

    /// Whether a display is initialized on a GPU.
    pub fn is_display_active(self) -> Result<bool> {
        self.is_on("display state", Functions::display_active)
    }

    /// Whether the driver keeps a GPU initialized when no process uses it.
    pub fn is_persistent(self) -> Result<bool> {
        self.is_on("persistence mode", Functions::persistence_mode)
    }

    /// How many processes may use a GPU.
    pub fn compute_mode(self) -> Result<ComputeMode> {
        match self.number(Functions::compute_mode)? {
            0 => Ok(ComputeMode::Default),
            1 => Ok(ComputeMode::ExclusiveThread),
            2 => Ok(ComputeMode::Prohibited),
            3 => Ok(ComputeMode::ExclusiveProcess),
            value => Err(Error::UnknownValue { what: "compute mode", value }),
        }
    }

    /// Whether the driver records the peak memory of processes.
    pub fn is_accounting(self) -> Result<bool> {
        self.is_on("accounting mode", Functions::accounting_mode)
    }

    /// The peak memory of a process, in bytes, if accounting is on and the driver has recorded it.
    pub fn peak_memory(self, pid: u32) -> Result<Option<u64>> {
        let mut stats = AccountingStats::default();
        // SAFETY: the handle is NVML's, and the out-parameter is valid.
        unsafe { self.library.functions.accounting_stats(self.handle, pid, &raw mut stats) }?;
        Ok(available(stats.peak_memory))
    }

    /// Whether a GPU is divided into MIG instances.
    pub fn is_mig_enabled(self) -> Result<bool> {
        let (mut current, mut pending) = (0, 0);
        // SAFETY: the handle is NVML's, and the out-parameters are valid.
        unsafe { self.library.functions.mig_mode(self.handle, &raw mut current, &raw mut pending) }?;
        Ok(current == 1)
    }

    /// Maximum number of MIG instances of a GPU. Their indices are below it and can have gaps.
    pub fn mig_device_count(self) -> Result<u32> {
        bounded("MIG instances", self.number(Functions::mig_device_count)?, MOST_INSTANCES)
    }

    /// A MIG instance of a GPU; [`Code::NOT_FOUND`](crate::Code::NOT_FOUND) if the index is in a gap.
    pub fn mig_device(self, index: u32) -> Result<Self> {
        let mut handle = 0;
        // SAFETY: the handle is NVML's, and the out-parameter is valid.
        unsafe { self.library.functions.mig_device_by_index(self.handle, index, &raw mut handle) }?;
        Ok(Self::new(self.library, handle))
    }

    fn number(self, read: ReadNumber) -> Result<u32> {
        let mut number = 0;
        // SAFETY: the handle is NVML's, and the out-parameter is valid.
        unsafe { read(&self.library.functions, self.handle, &raw mut number) }?;
        Ok(number)
    }

    /// An `nvmlEnableState_t`.
    fn is_on(self, what: &'static str, read: ReadNumber) -> Result<bool> {
        match self.number(read)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Error::UnknownValue { what, value }),
        }
    }
}

/// A number, or `None` if NVML does not have it.
pub(crate) fn available(figure: u64) -> Option<u64> {
    Some(figure).filter(|figure| *figure != NOT_AVAILABLE)
}
