//! The functions about pools. Each reads its arguments, looks its pool up and calls one function of it.

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

/// What the header calls this version.
const VERSION: c_uint = 1;

/// A stream's identity.
pub(crate) fn stream_id(stream: *mut c_void) -> StreamId {
    StreamId(stream as u64)
}

/// Puts an answer where the caller wants it.
///
/// # Safety
///
/// `place` is null or can be written.
unsafe fn put<T>(place: *mut T, value: T, name: &str) -> Result<()> {
    if place.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    // SAFETY: not null, so it is the caller's place; it need not be aligned.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// A path from C.
///
/// # Safety
///
/// `path` is null or ends in a zero byte.
pub(crate) unsafe fn path_of<'text>(path: *const c_char) -> Result<&'text Path> {
    if path.is_null() {
        return Err(Failure::argument("path is null".to_owned()));
    }
    // SAFETY: passed on to the caller.
    let path = unsafe { CStr::from_ptr(path) };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// The version of the header that this library was built with.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_version() -> c_uint {
    VERSION
}

/// Makes a pool on a device.
///
/// # Safety
///
/// `wishes` is null or has the size that it says; `pool` is null or can be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn makeroom_pool_create(
    device: c_int,
    wishes: *const RawOptions,
    pool: *mut PoolHandle,
) -> Status {
    answer(|| {
        // SAFETY: passed on to the caller.
        unsafe { put(pool, 0, "pool") }?;
        // SAFETY: passed on to the caller.
        let entry = Entry::new(device, unsafe { options::read(wishes) }?)?;
        // SAFETY: passed on to the caller.
        unsafe { put(pool, registry::insert(entry)?, "pool") }
    })
}

/// Gives everything back to the device once the GPU is done with it.
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
        // SAFETY: passed on to the caller.
        unsafe { put(address, std::ptr::null_mut(), "address") }?;
        let entry = registry::get(pool)?;
        let site = Site::Code(caller as u64);
        let found = entry.allocator.allocate(bytes as u64, stream_id(stream), site)?;
        // SAFETY: passed on to the caller.
        unsafe { put(address, found.0 as *mut c_void, "address") }
    })
}

jump_with_caller! {
    /// Hands out memory for use on a stream.
    ///
    /// # Safety
    ///
    /// `address` is null or can be written.
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
        // SAFETY: passed on to the caller.
        Ok(unsafe { entry.allocator.free(Address(address as u64), stream_id(stream), site) }?)
    })
}

jump_with_caller! {
    /// Takes memory back in the order of a stream.
    ///
    /// # Safety
    ///
    /// Nothing uses the memory any more, except work submitted before to this stream or to recorded ones.
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

/// The pool in figures.
///
/// # Safety
///
/// `stats` is null or has the size that it says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn makeroom_pool_stats(pool: PoolHandle, stats: *mut RawStats) -> Status {
    answer(|| {
        let figures = registry::get(pool)?.stats();
        // SAFETY: passed on to the caller.
        unsafe { options::write(stats, "stats", &figures) }
    })
}

/// Begins the peaks anew.
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

/// Gives unused memory back to the device.
///
/// # Safety
///
/// `given_back` is null or can be written.
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
        // SAFETY: passed on to the caller.
        unsafe { put(given_back, bytes, "given_back") }
    })
}

/// Writes a snapshot in PyTorch's format.
///
/// # Safety
///
/// `path` is null or ends in a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn makeroom_pool_snapshot(pool: PoolHandle, path: *const c_char) -> Status {
    answer(|| {
        // SAFETY: passed on to the caller.
        let path = unsafe { path_of(path) }?;
        let entry = registry::get(pool)?;
        entry::save(path, &[entry.snapshot((0, 0))])
    })
}
