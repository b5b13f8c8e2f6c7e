//! Errors: no driver, a driver without the function, a failed call.
//!
//! Creating an error takes no memory and no lock once the driver is loaded: it happens inside other people's
//! programs, when memory is short.

use std::fmt;

use makeroom_core::Bytes;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver is missing or cannot be loaded.
    #[error("could not load the CUDA driver: {reason}")]
    NotLoaded {
        /// The dynamic linker's message.
        reason: String,
    },
    /// The driver is too old for the function, or the library is not a driver.
    #[error("the CUDA driver does not have {function}")]
    Missing {
        /// The function's exported name.
        function: &'static str,
    },
    /// A driver call failed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A range beyond the end of a region.
    #[error("{end} is beyond the end of a region of {region}")]
    OutOfBounds {
        /// End of the requested range.
        end: Bytes,
        /// Length of the region.
        region: Bytes,
    },
}

impl Error {
    /// A suggested fix, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotLoaded { .. } => Some(
                "install the NVIDIA driver; in a container, pass the GPU (docker run --gpus all). To try makeroom without a GPU: makeroom demo",
            ),
            Self::Missing { .. } => Some("update the NVIDIA driver; nvidia-smi shows its version"),
            Self::Refused(refusal) => refusal.code.hint(),
            Self::OutOfBounds { .. } => None,
        }
    }

    /// The driver's return code, if there was a call.
    pub fn code(&self) -> Option<Code> {
        if let Self::Refused(refusal) = self { Some(refusal.code) } else { None }
    }

    /// Whether memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        self.code() == Some(Code::OUT_OF_MEMORY)
    }

    /// The same error with the size of the request.
    #[must_use]
    pub(crate) fn about(self, bytes: Bytes) -> Self {
        match self {
            Self::Refused(refusal) => Self::Refused(Refusal { requested: Some(bytes), ..refusal }),
            other => other,
        }
    }
}

/// A failed driver call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The function's exported name.
    pub function: &'static str,
    /// The driver's return code.
    pub code: Code,
    /// The driver's name for the code, if it has one.
    pub name: Option<&'static str>,
    /// Requested bytes, if the call was about memory.
    pub requested: Option<Bytes>,
    /// The device's free memory at that time, if memory ran out.
    pub free: Option<Bytes>,
    /// The device's total memory, if memory ran out.
    pub total: Option<Bytes>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.function)?;
        if let Some(requested) = self.requested {
            write!(formatter, " of {requested}")?;
        }
        write!(formatter, " failed with {}", self.code.0)?;
        if let Some(name) = self.name {
            write!(formatter, " ({name})")?;
        }
        if let (Some(free), Some(total)) = (self.free, self.total) {
            write!(formatter, "; {free} of {total} free")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

/// Return code of a driver function: a `CUresult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// The call succeeded.
    pub const SUCCESS: Self = Self(0);
    /// An invalid argument.
    pub const INVALID_VALUE: Self = Self(1);
    /// Out of memory.
    pub const OUT_OF_MEMORY: Self = Self(2);
    /// The driver was not initialized, or this process is a forked child.
    pub const NOT_INITIALIZED: Self = Self(3);
    /// The process is exiting and the driver is gone.
    pub const DEINITIALIZED: Self = Self(4);
    /// There is no device.
    pub const NO_DEVICE: Self = Self(100);
    /// The thread has no current context.
    pub const INVALID_CONTEXT: Self = Self(201);
    /// A device cannot access another's memory.
    pub const PEER_ACCESS_UNSUPPORTED: Self = Self(217);
    /// The named object does not exist.
    pub const NOT_FOUND: Self = Self(500);
    /// The work is not done yet.
    pub const NOT_READY: Self = Self(600);
    /// The device or driver does not support this.
    pub const NOT_SUPPORTED: Self = Self(801);
    /// The first error code related to stream capture.
    pub const STREAM_CAPTURE_UNSUPPORTED: Self = Self(900);
    /// The last error code related to stream capture.
    pub const STREAM_CAPTURE_WRONG_THREAD: Self = Self(908);

    fn hint(self) -> Option<&'static str> {
        match self {
            Self::OUT_OF_MEMORY => Some("to see what fills the GPU: makeroom run -- PROGRAM"),
            Self::NO_DEVICE => {
                Some("the driver sees no GPU: check CUDA_VISIBLE_DEVICES and the container's options")
            }
            Self::NOT_INITIALIZED => Some("CUDA does not work after fork: start child processes with spawn"),
            Self::INVALID_CONTEXT => Some("make a context current on this thread first"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_call_size_code_and_what_was_free() {
        let refusal = Refusal {
            function: "cuMemAlloc_v2",
            code: Code::OUT_OF_MEMORY,
            name: Some("CUDA_ERROR_OUT_OF_MEMORY"),
            requested: Some(Bytes::gib(2)),
            free: Some(Bytes::gib(1)),
            total: Some(Bytes::gib(8)),
        };
        let text =
            "cuMemAlloc_v2 of 2.00 GiB failed with 2 (CUDA_ERROR_OUT_OF_MEMORY); 1.00 GiB of 8.00 GiB free";
        assert_eq!(Error::from(refusal).to_string(), text);
        let bare = Refusal { name: None, requested: None, free: None, total: None, ..refusal };
        assert_eq!(bare.to_string(), "cuMemAlloc_v2 failed with 2");
    }
}
