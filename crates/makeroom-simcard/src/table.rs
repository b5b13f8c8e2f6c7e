//! The bytes of the shared file, and their mapping into this process.
//!
//! ```text
//! 0    magic   8 bytes "simcard2"
//! 8    used    16 × 8    pages taken of each card
//! 136  rows    128 × 288 process number, start time, image, /proc of the number, then pages and contexts on each card
//! ```
//!
//! Beyond its end, one byte for each row is never written: the process of the row keeps it locked while it lives.
//!
//! All fields are atomic numbers in the machine's byte order; a file of zeros is an empty table. Nothing here
//! waits: who needs several fields to change together holds the file's lock ([`Ledger`](crate::Ledger)).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

/// The most cards that a machine can have.
pub const DEVICES: usize = 16;
/// The most processes that can hold memory at a time.
pub(crate) const ROWS: usize = 128;
/// The first eight bytes of the file.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"simcard2");

/// The file.
///
/// Invariant while nobody is between two steps of taking: `used[d] = Σ rows.pages[d]`.
#[repr(C)]
pub(crate) struct Table {
    pub(crate) magic: AtomicU64,
    pub(crate) used: [AtomicU64; DEVICES],
    pub(crate) rows: [Row; ROWS],
}

/// One process. `process` is 0 while the row is free, and is the last field written when it is taken.
#[repr(C)]
pub(crate) struct Row {
    pub(crate) process: AtomicU64,
    pub(crate) started: AtomicU64,
    pub(crate) image: AtomicU64,
    pub(crate) numbering: AtomicU64,
    pub(crate) pages: [AtomicU64; DEVICES],
    pub(crate) contexts: [AtomicU64; DEVICES],
}

/// A table that is shared through a file, or one of this process alone.
pub(crate) struct Mapping {
    table: NonNull<Table>,
}

// SAFETY: the table consists of atomics only, and the mapping stays where it is until it is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above: every access through a shared reference is atomic.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the file, which grows to the table's size where it is shorter. Its blocks are set aside: on a
    /// full disk this fails, and not the first write through the mapping, which would be a signal.
    pub(crate) fn of_file(file: &File) -> io::Result<Self> {
        let size = libc::off_t::try_from(size_of::<Table>()).unwrap_or(libc::off_t::MAX);
        // SAFETY: the call takes a descriptor, which `file` keeps open, and touches no memory.
        let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        Self::new(libc::MAP_SHARED, file.as_raw_fd())
    }

    /// An empty table that nobody else sees.
    pub(crate) fn private() -> io::Result<Self> {
        Self::new(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    fn new(flags: i32, descriptor: i32) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory that exists.
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
        // SAFETY: the mapping is as long as a table, page aligned, lives as long as self, and any bytes are a
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
