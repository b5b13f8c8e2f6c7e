//! Why a pool could not do something. Out of memory always carries the account.

use std::fmt;

use makeroom_core::{Address, Bytes};
use makeroom_cuda::MemoryInfo;
use makeroom_place::pool::{Cause, FreeError, Shortage};

use crate::site::Site;

/// The result of everything here.
pub type Result<T> = std::result::Result<T, PoolError>;

/// Why a pool could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// There is no memory left for a request.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// The driver refused something other than memory.
    #[error(transparent)]
    Driver(#[from] makeroom_cuda::Error),
    /// The address cannot be freed, or was freed before.
    #[error(transparent)]
    WrongAddress(Box<WrongAddress>),
    /// The process is a forked child of the one that made the pool.
    #[error("this process was forked from the one that made the pool, and CUDA does not follow a fork")]
    Forked,
    /// A stream is in another context than the pool's.
    #[error("the stream is in another context than the pool's, the primary one of device {device}")]
    OtherContext {
        /// The pool's device.
        device: i32,
    },
    /// A piece of a chunked transfer failed.
    #[error(transparent)]
    Piece(Box<PieceError>),
    /// More elements than memory has addresses.
    #[error("{count} elements of {size} bytes are more than there are addresses")]
    TooManyElements {
        /// How many were asked for.
        count: usize,
        /// The size of one.
        size: usize,
    },
    /// Two things that belong to each other are not of one length.
    #[error("{from} elements do not fit {to}")]
    LengthsDiffer {
        /// The length of the source.
        from: usize,
        /// The length of the target.
        to: usize,
    },
}

impl PoolError {
    /// What to do about it, where that can be said.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::OutOfMemory(error) => Some(error.hint()),
            Self::Driver(error) => error.hint(),
            Self::Piece(piece) => match &piece.cause {
                PieceCause::Pool(error) => error.hint(),
                PieceCause::Read(_) | PieceCause::Torn { .. } => None,
            },
            Self::Forked => Some("start processes with spawn, not with fork, or make the pool in the child"),
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

/// A piece of a chunked transfer that failed, and why.
#[derive(Debug, thiserror::Error)]
#[error("piece {number} ({bytes}, from byte {start} of the source on): {cause}")]
pub struct PieceError {
    /// Which, counted from 0.
    pub number: u64,
    /// Where it begins in the source.
    pub start: u64,
    /// How large it is, or was to be.
    pub bytes: Bytes,
    /// Why.
    #[source]
    pub cause: PieceCause,
}

/// Why a piece failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PieceCause {
    /// The pool, the driver or the work itself.
    #[error(transparent)]
    Pool(PoolError),
    /// The source could not be read.
    #[error("the source could not be read: {0}")]
    Read(std::io::Error),
    /// The source ends inside of a value.
    #[error("the source ends {left} bytes into a value of {size}")]
    Torn {
        /// How many bytes of the value are there.
        left: usize,
        /// The size of one.
        size: usize,
    },
}

/// There is no memory left for a request, with the account of where it is.
///
/// `total = free + elsewhere + reserved` and `reserved = live + rounding + cached`
#[derive(Debug)]
pub struct OutOfMemory {
    /// The pool's own account.
    pub pool: Shortage,
    /// The device's, where it answered.
    pub device: Option<MemoryInfo>,
    /// What the driver said, if it was asked.
    pub driver: Option<makeroom_cuda::Error>,
    /// What lies in host memory already, and the most that may, if what does not fit goes there.
    pub spilled: Option<(Bytes, Bytes)>,
}

impl OutOfMemory {
    /// What is held outside of the pool: contexts, other allocators, other processes.
    pub fn elsewhere(&self) -> Option<Bytes> {
        let device = self.device?;
        let held = device.total.get().saturating_sub(device.free.get());
        Some(Bytes::new(held.saturating_sub(self.pool.stats.reserved)))
    }

    fn hint(&self) -> &'static str {
        match self.pool.cause {
            Cause::Limit | Cause::Device if self.spilled.is_some() => {
                "raise the quota of host memory, free what is live, or stream the data in pieces (ChunkedMap)"
            }
            Cause::Limit => "raise the pool's limit, or let what does not fit go to host memory: Spill",
            Cause::TooLarge => "the size is no size: look for an overflow where it is computed",
            Cause::Device => {
                "free what is live, stream the data in pieces (ChunkedMap), or spill to host memory (Spill)"
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
                "; of the device's {} {} is free and {elsewhere} held outside of the pool",
                device.total, device.free
            )?;
        }
        if let Some((now, quota)) = self.spilled {
            write!(formatter, "; {now} of {quota} is spilled to host memory")?;
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

/// An address that was given back and could not be.
#[derive(Debug)]
pub struct WrongAddress {
    /// What the pool found.
    pub reason: FreeError,
    /// Who gave it back.
    pub site: Site,
    /// Where it was allocated and freed before, if that is known.
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
            write!(formatter, "; allocated by {allocated}, freed before by {freed}")?;
        }
        Ok(())
    }
}

impl std::error::Error for WrongAddress {}
