//! A GPU, or a MIG instance of one: its properties and its memory.

use crate::abi::{AccountingStats, Handle, MemoryInfo, NAME_SIZE, NOT_AVAILABLE, PciInfo, UUID_SIZE};
use crate::error::{Error, Result};
use crate::library::{Library, bounded, read_text, text_of};
use crate::raw::Functions;

/// The largest number of MIG instances that is believed.
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

/// How many processes may use a GPU; the numbers are NVML's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeMode {
    /// Any number of processes.
    Default = 0,
    /// One thread. Drivers since CUDA 8 treat it as one process.
    ExclusiveThread = 1,
    /// None.
    Prohibited = 2,
    /// One process.
    ExclusiveProcess = 3,
}

/// A function that reads one number of a device.
type ReadNumber = unsafe fn(&Functions, Handle, *mut u32) -> Result<()>;

impl<'library> Device<'library> {
    pub(crate) fn new(library: &'library Library, handle: Handle) -> Self {
        Self { library, handle }
    }

    /// Its product name.
    pub fn name(self) -> Result<String> {
        read_text::<NAME_SIZE>(|text, length| {
            // SAFETY: NVML's handle, and the buffer has the stated length.
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

    /// Its memory. Drivers before 510 cannot tell reserved from used memory and lack the function.
    pub fn memory(self) -> Result<Memory> {
        let mut info = MemoryInfo::EMPTY;
        // SAFETY: NVML's handle, and a valid out-parameter of the version that it states.
        unsafe { self.library.functions.memory_info(self.handle, &raw mut info) }?;
        Ok(Memory { total: info.total, reserved: info.reserved, used: info.used, free: info.free })
    }

    /// PCI bus ID of a GPU: `00000000:17:00.0`.
    pub fn bus_id(self) -> Result<String> {
        let mut place = PciInfo::default();
        // SAFETY: NVML's handle and a valid out-parameter.
        unsafe { self.library.functions.pci_info(self.handle, &raw mut place) }?;
        text_of(&place.bus_id)
    }

    /// The number in the name of a GPU's file, `/dev/nvidiaN`.
    pub fn minor_number(self) -> Result<u32> {
        self.number(Functions::minor_number)
    }

    /// Whether a display is initialized on a GPU.
    pub fn is_display_active(self) -> Result<bool> {
        self.is_on("display state", Functions::display_active)
    }

    /// Whether the driver keeps a GPU initialized when there is no user.
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

    /// Whether the driver records peaks of processes.
    pub fn is_accounting(self) -> Result<bool> {
        self.is_on("accounting mode", Functions::accounting_mode)
    }

    /// The most memory that a process has had at once, in bytes, if accounting is on and the driver knows it.
    pub fn peak_memory(self, pid: u32) -> Result<Option<u64>> {
        let mut stats = AccountingStats::default();
        // SAFETY: NVML's handle and a valid out-parameter.
        unsafe { self.library.functions.accounting_stats(self.handle, pid, &raw mut stats) }?;
        Ok(available(stats.peak_memory))
    }

    /// Whether a GPU is divided into MIG instances.
    pub fn is_mig_enabled(self) -> Result<bool> {
        let (mut current, mut pending) = (0, 0);
        // SAFETY: NVML's handle and valid out-parameters.
        unsafe { self.library.functions.mig_mode(self.handle, &raw mut current, &raw mut pending) }?;
        Ok(current == 1)
    }

    /// How many MIG instances a GPU can have. Their indices are below that, with gaps.
    pub fn mig_device_count(self) -> Result<u32> {
        bounded("MIG instances", self.number(Functions::mig_device_count)?, MOST_INSTANCES)
    }

    /// A MIG instance of a GPU; [`Code::NOT_FOUND`](crate::Code::NOT_FOUND) at a gap.
    pub fn mig_device(self, index: u32) -> Result<Self> {
        let mut handle = 0;
        // SAFETY: NVML's handle and a valid out-parameter.
        unsafe { self.library.functions.mig_device_by_index(self.handle, index, &raw mut handle) }?;
        Ok(Self::new(self.library, handle))
    }

    fn number(self, read: ReadNumber) -> Result<u32> {
        let mut number = 0;
        // SAFETY: NVML's handle and a valid out-parameter.
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

/// A figure that NVML may not have.
pub(crate) fn available(figure: u64) -> Option<u64> {
    Some(figure).filter(|figure| *figure != NOT_AVAILABLE)
}
