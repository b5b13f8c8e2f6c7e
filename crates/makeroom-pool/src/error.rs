//! Errors of a pool. Out of memory always carries the account.

use std::fmt;

use makeroom_core::{Address, Bytes};
use makeroom_cuda::MemoryInfo;
use makeroom_place::pool::{Cause, FreeError, Shortage};

use crate::site::Site;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, PoolError>;

/// Why a pool operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// There is no memory left for a request.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// The driver failed with an error other than out of memory.
    #[error(transparent)]
    Driver(#[from] makeroom_cuda::Error),
    /// The address cannot be freed, or was already freed.
    #[error(transparent)]
    WrongAddress(Box<WrongAddress>),
    /// The process is a forked child of the one that created the pool.
    #[error(
        "this process was forked from the one that created the pool, and CUDA does not work after a fork"
    )]
    Forked,
    /// A stream is in another context than the pool's.
    #[error("the stream does not belong to the pool's context, the primary context of device {device}")]
    OtherContext {
        /// The pool's device.
        device: i32,
    },
    /// A piece of a chunked transfer failed.
    #[error(transparent)]
    Piece(Box<PieceError>),
    /// More bytes than the address space has.
    #[error("{count} elements of {size} bytes exceed the address space")]
    TooManyElements {
        /// Number of elements requested.
        count: usize,
        /// Size of an element.
        size: usize,
    },
    /// Source and target differ in length.
    #[error("cannot copy {from} elements to {to}")]
    LengthsDiffer {
        /// The length of the source.
        from: usize,
        /// The length of the target.
        to: usize,
    },
}

impl PoolError {
    /// A suggested fix, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::OutOfMemory(error) => Some(error.hint()),
            Self::Driver(error) => error.hint(),
            Self::Piece(piece) => match &piece.cause {
                PieceCause::Pool(error) => error.hint(),
                PieceCause::Read(_) | PieceCause::Torn { .. } => None,
            },
            Self::Forked => Some("start processes with spawn, not fork, or create the pool in the child"),
            _ => None,
        }
    }

    /// Whether memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::OutOfMemory(_) => true,
            Self::Piece(piece) => matches!(&piece.cause, PieceCause::Pool(error) if error.is_out_of_memory()),
            _ => false,
        }
    }
}

/// A failed piece of a chunked transfer.
#[derive(Debug, thiserror::Error)]
#[error("piece {number} ({bytes} at byte {start} of the source): {cause}")]
pub struct PieceError {
    /// Its number, from 0.
    pub number: u64,
    /// Its offset in the source, in bytes.
    pub start: u64,
    /// Its actual or intended size.
    pub bytes: Bytes,
    /// Why it failed.
    #[source]
    pub cause: PieceCause,
}

/// Why a piece failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PieceCause {
    /// The pool, the driver or the callback failed.
    #[error(transparent)]
    Pool(PoolError),
    /// The source could not be read.
    #[error("could not read the source: {0}")]
    Read(std::io::Error),
    /// The source ends in the middle of a value.
    #[error("the source ends {left} bytes into a value of {size}")]
    Torn {
        /// Bytes of the value that were read.
        left: usize,
        /// Size of a value.
        size: usize,
    },
}

/// No memory is left for a request, with the account of where it is.
///
/// `total = free + elsewhere + reserved` and `reserved = live + rounding + cached`
#[derive(Debug)]
pub struct OutOfMemory {
    /// The pool's own account.
    pub pool: Shortage,
    /// The device's account, if the driver responded.
    pub device: Option<MemoryInfo>,
    /// The driver's error, if it was called.
    pub driver: Option<makeroom_cuda::Error>,
    /// Memory spilled to the host, and the quota, if spilling is on.
    pub spilled: Option<(Bytes, Bytes)>,
}

impl OutOfMemory {
    /// Memory held outside the pool: contexts, other allocators, other processes.
    pub fn elsewhere(&self) -> Option<Bytes> {
        let device = self.device?;
        let held = device.total.get().saturating_sub(device.free.get());
        Some(Bytes::new(held.saturating_sub(self.pool.stats.reserved)))
    }

    fn hint(&self) -> &'static str {
        match self.pool.cause {
            Cause::Limit | Cause::Device if self.spilled.is_some() => {
                "raise the host memory quota, free live memory, or stream the data in pieces (ChunkedMap)"
            }
            Cause::Limit => "raise the pool's limit, or spill to host memory (Spill)",
            Cause::TooLarge => "the size is invalid: look for an integer overflow where it is computed",
            Cause::Device => {
                "free live memory, stream the data in pieces (ChunkedMap), or spill to host memory (Spill)"
            }
        }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "out of memory: {}", self.pool)?;
        if let (Some(device), Some(elsewhere)) = (self.device, self.elsewhere()) {
            write!(
                formatter,
                "; of the device's {}, {} is free and {elsewhere} is held outside the pool",
                device.total, device.free
            )?;
        }
        if let Some((now, quota)) = self.spilled {
            write!(formatter, "; spilled to host memory: {now} of {quota}")?;
        }
        if let Some(driver) = &self.driver {
            write!(formatter, "; {driver}")?;
        }
        Ok(())
    }
}

impl std::error::Error for OutOfMemory {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.driver.as_ref().map(|error| error as _)
    }
}

/// A failed free: the address is not live.
#[derive(Debug)]
pub struct WrongAddress {
    /// What the pool found.
    pub reason: FreeError,
    /// The site of the failed free.
    pub site: Site,
    /// Where it was allocated and freed before, if known.
    pub before: Option<(Site, Site)>,
}

impl WrongAddress {
    /// The address.
    pub fn address(&self) -> Address {
        self.reason.address()
    }
}

impl fmt::Display for WrongAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (freed by {})", self.reason, self.site)?;
        if let Some((allocated, freed)) = &self.before {
            write!(formatter, "; allocated by {allocated}, already freed by {freed}")?;
        }
        Ok(())
    }
}

impl std::error::Error for WrongAddress {}
