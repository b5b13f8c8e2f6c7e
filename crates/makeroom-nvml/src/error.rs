//! Errors: a missing library, a missing function, a failed call, an invalid reply.
//!
//! The message of a failed call does not name the function, because programs print it after the name of the query:
//! `memory: the current user …`. The function is a field.

use std::fmt;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library is missing or cannot be loaded.
    #[error("could not load NVML: {reason}")]
    NotLoaded {
        /// The dynamic linker's message.
        reason: String,
    },
    /// The library is too old for the function, or is not NVML.
    #[error("NVML does not have {function}")]
    Missing {
        /// The function's exported name.
        function: &'static str,
    },
    /// A call failed.
    #[error("{code}")]
    Failed {
        /// The function's exported name.
        function: &'static str,
        /// NVML's return code.
        code: Code,
    },
    /// A string that is not UTF-8.
    #[error("could not interpret string as utf-8")]
    NotUtf8,
    /// A value that NVML's header does not define.
    #[error("NVML returned {value} as {what}")]
    UnknownValue {
        /// The property that was read.
        what: &'static str,
        /// The value.
        value: u32,
    },
    /// An impossibly large count.
    #[error("NVML reported {count} {what}, more than {limit}")]
    TooMany {
        /// The objects that were counted.
        what: &'static str,
        /// The reported number.
        count: u32,
        /// The largest accepted number.
        limit: u32,
    },
}

impl Error {
    /// NVML's return code, if there was a call.
    pub fn code(&self) -> Option<Code> {
        if let Self::Failed { code, .. } = self { Some(*code) } else { None }
    }

    /// Whether this GPU or this version of NVML merely lacks a feature.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Missing { .. }) || self.code() == Some(Code::NOT_SUPPORTED)
    }
}

/// Return code of a function: an `nvmlReturn_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// NVML is not initialized.
    pub const UNINITIALIZED: Self = Self(1);
    /// An invalid argument.
    pub const INVALID_ARGUMENT: Self = Self(2);
    /// The GPU does not support the function.
    pub const NOT_SUPPORTED: Self = Self(3);
    /// The user lacks permission.
    pub const NO_PERMISSION: Self = Self(4);
    /// The named object does not exist.
    pub const NOT_FOUND: Self = Self(6);
    /// A buffer is too small.
    pub const INSUFFICIENT_SIZE: Self = Self(7);
    /// The driver is not loaded.
    pub const DRIVER_NOT_LOADED: Self = Self(9);
    /// The GPU fell off the bus.
    pub const GPU_IS_LOST: Self = Self(15);
    /// The GPU needs a reset.
    pub const RESET_REQUIRED: Self = Self(16);
    /// The library and the loaded driver have different versions.
    pub const LIBRARY_MISMATCH: Self = Self(18);
    /// An error inside the driver.
    pub const UNKNOWN: Self = Self(999);

    /// The meaning of the code, worded to follow the name of the query. The numbers are those of `nvmlReturn_t`.
    fn meaning(self) -> Option<&'static str> {
        Some(match self {
            Self::UNINITIALIZED => "NVML was not initialized",
            Self::INVALID_ARGUMENT => "a supplied argument was invalid",
            Self::NOT_SUPPORTED => "the requested operation is not available on the target device",
            Self::NO_PERMISSION => "the current user does not have permission to perform this operation",
            Self(5) => "NVML was already initialized",
            Self::NOT_FOUND => "a query to find an object was unsuccessful",
            Self::INSUFFICIENT_SIZE => "an input argument is not large enough",
            Self(8) => "device's external power cables are not properly attached",
            Self::DRIVER_NOT_LOADED => "NVIDIA driver is not loaded",
            Self(10) => "the provided timeout was reached",
            Self(11) => "NVIDIA kernel detected an interrupt issue with a device",
            Self(12) => "a shared library couldn't be found or loaded",
            Self(13) => "a function couldn't be found in a shared library",
            Self(14) => "the infoROM is corrupted",
            Self::GPU_IS_LOST => "device fell off the bus or has otherwise become inaccessible",
            Self::RESET_REQUIRED => "device requires a reset before it can be used again",
            Self(17) => "device control has been blocked by the operating system/cgroups",
            Self::LIBRARY_MISMATCH => "RM detects a driver/library version mismatch",
            Self(19) => "operation cannot be performed because the GPU is currently in use",
            Self(20) => "insufficient memory",
            Self(21) => "no data",
            Self(22) => {
                "the requested vgpu operation is not available on the target device because ECC is enabled"
            }
            Self::UNKNOWN => "an internal driver error occurred",
            Self(_) => return None,
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(meaning) => formatter.write_str(meaning),
            None => write!(formatter, "error code {}", self.0),
        }
    }
}
