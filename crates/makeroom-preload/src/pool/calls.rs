//! Allocations and frees, with the driver's semantics:
//!
//! | call | guarantee afterwards |
//! |---|---|
//! | `cuMemAlloc` | usable on every stream at once: memory that the GPU may still be using is not handed out |
//! | `cuMemFree` | all work submitted before is done: it synchronizes the device, as the driver does |
//! | `cuMemAllocAsync` | usable on this stream |
//! | `cuMemFreeAsync` | reusable on this stream at once, elsewhere after the GPU has passed this point |

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use makeroom_core::{Address, StreamId};
use makeroom_cuda::Stream;
use makeroom_pool::{EVERY_STREAM, PoolError, Site};

use super::devices::{self, DevicePool};
use super::{callers, foreign, pools, watch};
use crate::driver::types::{CuResult, DevicePointer, Handle, OUT_OF_MEMORY, SUCCESS};
use crate::driver::{capture, place};

/// `CUDA_ERROR_INVALID_VALUE`.
pub(super) const INVALID_VALUE: CuResult = 1;
/// `CU_STREAM_LEGACY`: an alias of stream 0.
const LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`: a different stream on every thread.
const PER_THREAD: u64 = 2;
/// The recording keeps the sites.
const NO_SITE: Site = Site::Code(0);

/// The stream as the pool identifies it; `None` if the pool cannot order by it.
fn ordered(stream: Handle) -> Option<StreamId> {
    match stream as u64 {
        PER_THREAD => None,
        LEGACY => Some(StreamId(0)),
        other => Some(StreamId(other)),
    }
}

/// Whether a stream is being captured into a graph. If the driver does not say, it counts as captured.
pub(super) fn is_captured(pool: &DevicePool, stream: StreamId) -> bool {
    if !capture::is_open() {
        return false;
    }
    // SAFETY: the program itself passes this stream to the driver, so it is live.
    let stream = unsafe { Stream::borrow(pool.allocator.driver(), stream.0) };
    stream.is_capturing().unwrap_or(true)
}

/// Serves `cuMemAlloc`.
///
/// # Safety
///
/// `pointer` is the program's out-parameter for the address, or null.
pub(crate) unsafe fn allocate_everywhere(pointer: *mut DevicePointer, bytes: u64) -> Option<CuResult> {
    if capture::is_open() || callers::need_driver_memory() {
        return None;
    }
    let pool = devices::current()?;
    retry_deferred();
    // SAFETY: guaranteed by the caller.
    unsafe { take(pool, pointer, bytes, EVERY_STREAM) }
}

/// Serves `cuMemAllocAsync`.
///
/// # Safety
///
/// As for [`allocate_everywhere`].
pub(crate) unsafe fn allocate_on_stream(
    pointer: *mut DevicePointer,
    bytes: usize,
    stream: Handle,
) -> Option<CuResult> {
    let pool = devices::serving(place::of_stream(stream)?)?;
    let stream = ordered(stream)?;
    if is_captured(pool, stream) {
        return None;
    }
    retry_deferred();
    // SAFETY: guaranteed by the caller.
    unsafe { take(pool, pointer, bytes as u64, stream) }
}

/// # Safety
///
/// As for [`allocate_everywhere`].
unsafe fn take(
    pool: &DevicePool,
    pointer: *mut DevicePointer,
    bytes: u64,
    stream: StreamId,
) -> Option<CuResult> {
    // Leave to the driver what it rejects or handles specially.
    if pointer.is_null() || bytes == 0 {
        return None;
    }
    match pool.allocator.allocate(bytes, stream, NO_SITE) {
        Ok(address) => {
            // SAFETY: not null, so it is the program's out-parameter for the address.
            unsafe { pointer.write_unaligned(address.0) };
            Some(SUCCESS)
        }
        // If the device failed for another reason, the driver reports it.
        Err(PoolError::OutOfMemory(error)) if error.driver.as_ref().is_none_or(is_shortage) => {
            Some(OUT_OF_MEMORY)
        }
        Err(_) => None,
    }
}

fn is_shortage(error: &makeroom_cuda::Error) -> bool {
    error.is_out_of_memory()
}

/// The driver's error code, as the program would have received it.
fn code(error: &PoolError) -> CuResult {
    let PoolError::Driver(error) = error else { return INVALID_VALUE };
    error.code().map_or(INVALID_VALUE, |code| code.0.cast_signed())
}

/// The pool that an address came from, found without taking the pool's lock, which the free itself takes.
pub(super) fn owner(address: u64) -> Option<&'static DevicePool> {
    match watch::device_of(address) {
        Some(device) => devices::known(device),
        None if watch::is_overfull() => devices::all().find(|pool| pool.allocator.reaches(Address(address))),
        None => None,
    }
}

fn give(pool: &DevicePool, address: u64, stream: StreamId) -> CuResult {
    // SAFETY: the program gives up the memory, in the order that the call defines.
    match unsafe { pool.allocator.free(Address(address), stream, NO_SITE) } {
        Ok(()) => {
            pools::freed(address);
            SUCCESS
        }
        Err(_) => INVALID_VALUE,
    }
}

/// Serves `cuMemFreeAsync`.
pub(crate) fn free_on(address: u64, stream: Handle) -> Option<CuResult> {
    super::taking_back(address, || {
        let pool = owner(address)?;
        retry_deferred();
        let ordered = match (ordered(stream), place::of_stream(stream)) {
            (Some(id), Some(place)) if place.context == pool.context => Some(id),
            // The pool's events cannot be recorded on a stream of another context.
            (Some(id), Some(place)) => foreign::relay(pool, place.context, id),
            _ => None,
        };
        Some(match ordered {
            Some(stream) => give(pool, address, stream),
            None => free_idle(pool, address),
        })
    })
}

/// Serves `cuMemFree`.
pub(crate) fn free(address: u64) -> Option<CuResult> {
    super::taking_back(address, || {
        let pool = owner(address)?;
        retry_deferred();
        Some(free_idle(pool, address))
    })
}

/// Frees memory after all submitted work.
fn free_idle(pool: &DevicePool, address: u64) -> CuResult {
    // Synchronizing the device would break a capture.
    if capture::is_open() {
        defer(vec![address]);
        return SUCCESS;
    }
    match pool.pool.synchronize() {
        Ok(()) => give(pool, address, EVERY_STREAM),
        Err(error) => code(&error),
    }
}

/// Memory freed while the device could not be synchronized.
static DEFERRED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
/// Few programs free during a capture; the rest skip the lock.
static HAS_DEFERRED: AtomicBool = AtomicBool::new(false);

fn deferred() -> MutexGuard<'static, Vec<u64>> {
    DEFERRED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn defer(addresses: Vec<u64>) {
    let mut deferred = deferred();
    deferred.extend(addresses);
    HAS_DEFERRED.store(true, Ordering::Relaxed);
}

#[inline]
fn retry_deferred() {
    if HAS_DEFERRED.load(Ordering::Relaxed) && !capture::is_open() {
        give_deferred();
    }
}

/// Releases the lock before it synchronizes the device, which may itself wait for a thread that frees in a capture.
#[cold]
fn give_deferred() {
    let mut addresses = {
        let mut deferred = deferred();
        HAS_DEFERRED.store(false, Ordering::Relaxed);
        std::mem::take(&mut *deferred)
    };
    for pool in devices::all() {
        let is_own = |address: &mut u64| pool.allocator.reaches(Address(*address));
        let own: Vec<u64> = addresses.extract_if(.., is_own).collect();
        if own.is_empty() {
            continue;
        }
        if pool.pool.synchronize().is_err() {
            defer(own);
            continue;
        }
        for address in own {
            give(pool, address, EVERY_STREAM);
        }
    }
}

/// A stream is about to be destroyed; the driver destroys it.
pub(crate) fn retire_stream(stream: Handle) -> Option<CuResult> {
    if let Some(stream) = ordered(stream) {
        devices::all().for_each(|pool| pool.allocator.retire_stream(stream));
    }
    place::stream_ended();
    None
}
