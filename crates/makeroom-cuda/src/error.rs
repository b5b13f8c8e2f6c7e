//! What can go wrong: no driver, a driver without the function, a call that was refused.
//!
//! Making an error takes no memory and no lock once the driver is there: it happens inside other people's programs, at
//! moments when memory is short.

use std::fmt;

use makeroom_core::Bytes;

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no driver, or none that can be loaded.
    #[error("could not load the CUDA driver: {reason}")]
    NotLoaded {
        /// What the dynamic linker said.
        reason: String,
    },
    /// The driver is older than the function, or the library is no driver.
    #[error("the CUDA driver does not have {function}")]
    Missing {
        /// The function's exported name.
        function: &'static str,
    },
    /// The driver refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A part was asked for that a region does not have.
    #[error("{end} is beyond the end of a region of {region}")]
    OutOfBounds {
        /// Where the part would end.
        end: Bytes,
        /// How long the region is.
        region: Bytes,
    },
}

impl Error {
    /// What to do about it, where that can be said.
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

    /// The driver's answer, where it gave one.
    pub fn code(&self) -> Option<Code> {
        if let Self::Refused(refusal) = self { Some(refusal.code) } else { None }
    }

    /// Whether memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        self.code() == Some(Code::OUT_OF_MEMORY)
    }

    /// The same error with the size that it is about.
    #[must_use]
    pub(crate) fn about(self, bytes: Bytes) -> Self {
        match self {
            Self::Refused(refusal) => Self::Refused(Refusal { requested: Some(bytes), ..refusal }),
            other => other,
        }
    }
}

/// A call that the driver refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The function's exported name.
    pub function: &'static str,
    /// The driver's answer.
    pub code: Code,
    /// The driver's own name for it, if it has one.
    pub name: Option<&'static str>,
    /// How much was asked for, if it was about memory.
    pub requested: Option<Bytes>,
    /// What the device had free then, if memory ran out.
    pub free: Option<Bytes>,
    /// How large the device is, if memory ran out.
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

/// What a driver function returns: a `CUresult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// The call did what it should.
    pub const SUCCESS: Self = Self(0);
    /// An argument was wrong.
    pub const INVALID_VALUE: Self = Self(1);
    /// Memory ran out.
    pub const OUT_OF_MEMORY: Self = Self(2);
    /// The driver was not started, or this process is a forked child.
    pub const NOT_INITIALIZED: Self = Self(3);
    /// The process is ending and the driver is gone.
    pub const DEINITIALIZED: Self = Self(4);
    /// There is no device.
    pub const NO_DEVICE: Self = Self(100);
    /// The thread has no current context.
    pub const INVALID_CONTEXT: Self = Self(201);
    /// A device cannot reach another's memory.
    pub const PEER_ACCESS_UNSUPPORTED: Self = Self(217);
    /// The named thing is not there.
    pub const NOT_FOUND: Self = Self(500);
    /// The work is not done yet.
    pub const NOT_READY: Self = Self(600);
    /// The device or driver cannot do this.
    pub const NOT_SUPPORTED: Self = Self(801);
    /// The first of those that come because a stream is being captured.
    pub const STREAM_CAPTURE_UNSUPPORTED: Self = Self(900);
    /// The last of those.
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
