//! The ABI: structures and status codes of `makeroom.h`, in the same order.

use std::ffi::{c_int, c_ulonglong};

/// Return type of the functions.
pub(crate) type Status = c_int;

/// Success.
pub(crate) const OK: Status = 0;
/// Out of memory.
pub(crate) const OUT_OF_MEMORY: Status = 1;
/// An argument is null or not a valid value.
pub(crate) const INVALID_ARGUMENT: Status = 2;
/// Not the number of a pool, or that of a destroyed one.
pub(crate) const NO_SUCH_POOL: Status = 3;
/// The address is not the start of a live block in this pool: a double free or a foreign pointer.
pub(crate) const WRONG_ADDRESS: Status = 4;
/// The driver is missing, or failed with an error other than out of memory.
pub(crate) const DRIVER: Status = 5;
/// The process was forked from the one that created the pool.
pub(crate) const FORKED: Status = 6;
/// A file could not be written.
pub(crate) const FILE: Status = 7;
/// A bug in the library.
pub(crate) const INTERNAL: Status = 8;

/// A pool by its number.
pub(crate) type PoolHandle = u64;

/// `makeroom_options`. Zero is the default of every field after the first.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawOptions {
    pub(crate) size: usize,
    pub(crate) limit: u64,
    pub(crate) spill: u64,
    pub(crate) history: u64,
}

/// `makeroom_stats`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawStats {
    pub(crate) size: usize,
    pub(crate) live: u64,
    pub(crate) pending: u64,
    pub(crate) rounding: u64,
    pub(crate) reserved: u64,
    pub(crate) cached: u64,
    pub(crate) peak_live: u64,
    pub(crate) peak_reserved: u64,
    pub(crate) blocks: u64,
    pub(crate) allocations: u64,
    pub(crate) refusals: u64,
    pub(crate) spilled: u64,
    pub(crate) peak_spilled: u64,
    pub(crate) driver_nanoseconds: u64,
}

/// `makeroom_shortage`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawShortage {
    pub(crate) size: usize,
    pub(crate) requested: u64,
    pub(crate) device_free: u64,
    pub(crate) device_total: u64,
    pub(crate) largest: u64,
    pub(crate) live: u64,
    pub(crate) reserved: u64,
    pub(crate) limit: u64,
    pub(crate) spilled: u64,
    pub(crate) spill_quota: u64,
}

/// `makeroom_mempool_id`: PyTorch's `MempoolId_t`, a pair, which C++ passes like this structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct MempoolId {
    pub(crate) first: c_ulonglong,
    pub(crate) second: c_ulonglong,
}
