//! The functions for pools. Each reads its arguments, looks up its pool and calls one function of it.

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use makeroom_core::{Address, Bytes, StreamId};
use makeroom_pool::Site;

use crate::abi::{OK, PoolHandle, RawOptions, RawStats, Status};
use crate::caller::jump_with_caller;
use crate::entry::{self, Entry};
use crate::failure::{Failure, Result, answer};
use crate::{options, registry};

/// The version of the header.
const VERSION: c_uint = 1;

/// A stream's id.
pub(crate) fn stream_id(stream: *mut c_void) -> StreamId {
    StreamId(stream as u64)
}

/// Writes a result to an out-parameter.
///
/// # Safety
///
/// `place` is null or writable.
unsafe fn put<T>(place: *mut T, value: T, name: &str) -> Result<()> {
    if place.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    // SAFETY: not null, so it is the caller's out-parameter; it need not be aligned.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// A path from C.
///
/// # Safety
///
/// `path` is null or NUL-terminated.
pub(crate) unsafe fn path_of<'text>(path: *const c_char) -> Result<&'text Path> {
    if path.is_null() {
        return Err(Failure::argument("path is null".to_owned()));
    }
    // SAFETY: guaranteed by the caller.
    let path = unsafe { CStr::from_ptr(path) };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// The version of the header that this library was built with.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_version() -> c_uint {
    VERSION
}

/// Creates a pool on a device.
///
/// # Safety
///
/// `wishes` is null or has the size in its first field; `pool` is null or writable.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn makeroom_pool_create(
    device: c_int,
    wishes: *const RawOptions,
    pool: *mut PoolHandle,
) -> Status {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { put(pool, 0, "pool") }?;
        // SAFETY: guaranteed by the caller.
        let entry = Entry::new(device, unsafe { options::read(wishes) }?)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(pool, registry::insert(entry)?, "pool") }
    })
}

/// Destroys a pool. Releases everything to the device once the GPU is done with it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_pool_destroy(pool: PoolHandle) -> Status {
    if pool == 0 {
        return OK;
    }
    answer(|| registry::remove(pool))
}

/// Makes the pool's context current on this thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_pool_make_current(pool: PoolHandle) -> Status {
    answer(|| Ok(registry::get(pool)?.pool.make_current()?))
}

unsafe extern "C" fn alloc(
    pool: PoolHandle,
    bytes: usize,
    stream: *mut c_void,
    address: *mut *mut c_void,
    caller: usize,
) -> Status {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { put(address, std::ptr::null_mut(), "address") }?;
        let entry = registry::get(pool)?;
        let site = Site::Code(caller as u64);
        let found = entry.allocator.allocate(bytes as u64, stream_id(stream), site)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(address, found.0 as *mut c_void, "address") }
    })
}

jump_with_caller! {
    /// Allocates memory for use on a stream.
    ///
    /// # Safety
    ///
    /// `address` is null or writable.
    "C" fn makeroom_alloc(pool: PoolHandle, bytes: usize, stream: *mut c_void, address: *mut *mut c_void) -> Status,
    "r8", "x4", alloc
}

unsafe extern "C" fn free(
    pool: PoolHandle,
    address: *mut c_void,
    stream: *mut c_void,
    caller: usize,
) -> Status {
    if address.is_null() {
        return OK;
    }
    answer(|| {
        let entry = registry::get(pool)?;
        let site = Site::Code(caller as u64);
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { entry.allocator.free(Address(address as u64), stream_id(stream), site) }?)
    })
}

jump_with_caller! {
    /// Frees memory in stream order.
    ///
    /// # Safety
    ///
    /// The memory is no longer used, except by work already submitted to this stream or to recorded ones.
    "C" fn makeroom_free(pool: PoolHandle, address: *mut c_void, stream: *mut c_void) -> Status,
    "rcx", "x3", free
}

/// Another stream uses a block too.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_record_stream(
    pool: PoolHandle,
    address: *mut c_void,
    stream: *mut c_void,
) -> Status {
    answer(|| {
        let entry = registry::get(pool)?;
        Ok(entry.allocator.record_stream(Address(address as u64), stream_id(stream))?)
    })
}

/// A stream is about to be destroyed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_retire_stream(pool: PoolHandle, stream: *mut c_void) -> Status {
    answer(|| {
        registry::get(pool)?.allocator.retire_stream(stream_id(stream));
        Ok(())
    })
}

/// Statistics of a pool.
///
/// # Safety
///
/// `stats` is null or has the size in its first field.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn makeroom_pool_stats(pool: PoolHandle, stats: *mut RawStats) -> Status {
    answer(|| {
        let figures = registry::get(pool)?.stats();
        // SAFETY: guaranteed by the caller.
        unsafe { options::write(stats, "stats", &figures) }
    })
}

/// Resets the peaks.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_pool_reset_peaks(pool: PoolHandle) -> Status {
    answer(|| {
        registry::get(pool)?.pool.reset_peaks();
        Ok(())
    })
}

/// Changes the limit.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_pool_set_limit(pool: PoolHandle, limit: u64) -> Status {
    answer(|| Ok(registry::get(pool)?.pool.set_limit((limit != 0).then_some(Bytes::new(limit)))?))
}

/// Releases cached memory to the device.
///
/// # Safety
///
/// `given_back` is null or writable.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn makeroom_pool_trim(
    pool: PoolHandle,
    keep: u64,
    given_back: *mut u64,
) -> Status {
    answer(|| {
        let bytes = registry::get(pool)?.allocator.trim(keep);
        if given_back.is_null() {
            return Ok(());
        }
        // SAFETY: guaranteed by the caller.
        unsafe { put(given_back, bytes, "given_back") }
    })
}

/// Writes a snapshot in PyTorch's format.
///
/// # Safety
///
/// `path` is null or NUL-terminated.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn makeroom_pool_snapshot(pool: PoolHandle, path: *const c_char) -> Status {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let path = unsafe { path_of(path) }?;
        let entry = registry::get(pool)?;
        entry::save(path, &[entry.snapshot((0, 0))])
    })
}
