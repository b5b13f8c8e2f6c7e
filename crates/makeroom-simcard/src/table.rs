//! The layout of the shared file, and its mapping into this process.
//!
//! ```text
//! 0    magic   8 bytes "simcard2"
//! 8    used    16 × 8    allocated pages of each GPU
//! 136  rows    128 × 288 PID, start time, image, /proc of the PID, then pages and contexts on each GPU
//! ```
//!
//! Past its end there is one byte per row, which is never written: the row's process keeps it locked while it is
//! alive.
//!
//! All fields are atomic integers in native byte order; a file of zeros is an empty table. Nothing here blocks: to
//! change several fields together, hold the file's lock ([`Ledger`](crate::Ledger)).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

/// Maximum number of GPUs.
pub const DEVICES: usize = 16;
/// Maximum number of processes that hold memory.
pub(crate) const ROWS: usize = 128;
/// The first eight bytes of the file.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"simcard2");

/// The file.
///
/// Invariant, except while an allocation is in progress: `used[d] = Σ rows.pages[d]`.
#[repr(C)]
pub(crate) struct Table {
    pub(crate) magic: AtomicU64,
    pub(crate) used: [AtomicU64; DEVICES],
    pub(crate) rows: [ProcessSlot; ROWS],
}

/// One process. `process` is 0 while the row is free, and is written last when the row is taken.
#[repr(C)]
pub(crate) struct ProcessSlot {
    pub(crate) process: AtomicU64,
    pub(crate) started: AtomicU64,
    pub(crate) image: AtomicU64,
    pub(crate) numbering: AtomicU64,
    pub(crate) pages: [AtomicU64; DEVICES],
    pub(crate) contexts: [AtomicU64; DEVICES],
}

/// A table that is shared through a file, or private to this process.
pub(crate) struct Mapping {
    table: NonNull<Table>,
}

// SAFETY: the table consists of atomics only, and the mapping is not moved until it is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above: every access through a shared reference is atomic.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the file and extends it to the table's size. Its blocks are allocated here, so that a full disk is an
    /// error now and not a SIGBUS at the first write through the mapping.
    pub(crate) fn of_file(file: &File) -> io::Result<Self> {
        let size = libc::off_t::try_from(size_of::<Table>()).unwrap_or(libc::off_t::MAX);
        // SAFETY: the call takes a descriptor, which `file` keeps open, and touches no memory.
        let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        Self::new(libc::MAP_SHARED, file.as_raw_fd())
    }

    /// An empty table that is private to this process.
    pub(crate) fn private() -> io::Result<Self> {
        Self::new(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    fn new(flags: i32, descriptor: i32) -> io::Result<Self> {
        // SAFETY: a new mapping at an address chosen by the kernel does not affect existing memory.
        let address = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), size_of::<Table>(), protection, flags, descriptor, 0)
        };
        match NonNull::new(address.cast::<Table>()) {
            Some(table) if address != libc::MAP_FAILED => Ok(Self { table }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn table(&self) -> &Table {
        // SAFETY: the mapping has the size of a table, is page-aligned, lives as long as self, and any bytes are a
        // valid table.
        unsafe { self.table.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this size, and no reference to the table outlives self.
        unsafe { libc::munmap(self.table.as_ptr().cast(), size_of::<Table>()) };
    }
}
