//! The functions for PyTorch's `CUDAPluggableAllocator`: allocation and free, and the eight functions that its
//! setters accept.
//!
//! PyTorch has one allocator for all devices and identifies them by number, so these functions have no pool argument:
//! each device has its pools here (`device.rs`), created on first use. A null pointer does not report a failure to
//! PyTorch: it would become a tensor without memory. `raise.rs` explains what is done instead.

mod device;
mod devices;
mod raise;

use std::ffi::{c_char, c_int, c_void};

use makeroom_core::{Address, Bytes};
use makeroom_pool::Site;

use crate::abi::{MempoolId, RawOptions, RawStats, Status};
use crate::caller::jump_with_caller;
use crate::failure::{Failure, answer, guard, keep};
use crate::pool::{path_of, stream_id};
use crate::{entry, options};

unsafe extern "C-unwind" fn alloc(
    bytes: usize,
    device: c_int,
    stream: *mut c_void,
    caller: usize,
) -> *mut c_void {
    let site = Site::Code(caller as u64);
    let allocated =
        guard(|| devices::get(device)?.allocate_for_tensor(bytes as u64, stream_id(stream), site));
    match allocated {
        Ok(address) => return address.0 as *mut c_void,
        Err(failure) => keep(failure),
    };
    raise::last_failure();
    std::ptr::null_mut()
}

jump_with_caller! {
    /// PyTorch's `alloc_fn`. Throws PyTorch's exception if out of memory; returns null if PyTorch is not loaded.
    ///
    /// # Safety
    ///
    /// The caller can be unwound by a C++ exception.
    "C-unwind" fn makeroom_torch_alloc(bytes: usize, device: c_int, stream: *mut c_void) -> *mut c_void,
    "rcx", "x3", alloc
}

unsafe extern "C" fn free(
    address: *mut c_void,
    _bytes: usize,
    device: c_int,
    stream: *mut c_void,
    caller: usize,
) {
    if address.is_null() {
        return;
    }
    answer(|| {
        let site = Site::Code(caller as u64);
        // SAFETY: guaranteed by the caller.
        unsafe { devices::get(device)?.free(Address(address as u64), stream_id(stream), site) }
    });
}

jump_with_caller! {
    /// PyTorch's `free_fn`.
    ///
    /// # Safety
    ///
    /// The memory is no longer used, except by work already submitted to this stream or to recorded ones.
    "C" fn makeroom_torch_free(address: *mut c_void, bytes: usize, device: c_int, stream: *mut c_void) -> (),
    "r8", "x4", free
}

/// Sets the options for pools created from now on.
///
/// # Safety
///
/// `wishes` is null or has the size in its first field.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn makeroom_torch_configure(wishes: *const RawOptions) -> Status {
    // SAFETY: guaranteed by the caller.
    answer(|| devices::configure(unsafe { options::read(wishes) }?))
}

/// For `set_init_fn`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_torch_init(device_count: c_int) {
    answer(|| devices::expect(device_count));
}

/// For `set_reset_fn`, called by `empty_cache()`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_torch_reset() {
    answer(|| {
        devices::all()?.iter().for_each(|device| device.empty_cache());
        Ok(())
    });
}

/// For `set_memory_fraction_fn`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_torch_memory_fraction(fraction: f64, device: c_int) {
    answer(|| {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Failure::argument(format!("{fraction} is not a fraction of a device's memory")));
        }
        devices::get(device)?.set_fraction(fraction)
    });
}

/// For `set_base_alloc_fn`: the block that contains an address, and its size in bytes.
///
/// # Safety
///
/// `bytes` is null or writable.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn makeroom_torch_base_alloc(
    address: *mut c_void,
    bytes: *mut usize,
) -> *mut c_void {
    let found = guard(|| {
        let wanted = Address(address as u64);
        let found = devices::all()?.iter().find_map(|device| device.block_around(wanted));
        found.ok_or_else(|| Failure::new(crate::abi::WRONG_ADDRESS, format!("{wanted} is not in any block")))
    });
    match found {
        Ok((start, size)) => {
            if !bytes.is_null() {
                // SAFETY: guaranteed by the caller.
                unsafe { bytes.write_unaligned(size as usize) };
            }
            start.0 as *mut c_void
        }
        Err(failure) => {
            keep(failure);
            std::ptr::null_mut()
        }
    }
}

/// For `set_record_stream_fn`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_torch_record_stream(address: *mut c_void, stream: *mut c_void) {
    answer(|| {
        let address = Address(address as u64);
        let devices = devices::all()?;
        let device = devices.iter().find(|device| device.reaches(address));
        let foreign = || {
            Failure::new(crate::abi::WRONG_ADDRESS, format!("{address} was not allocated by makeroom's pool"))
        };
        device.ok_or_else(foreign)?.record_stream(address, stream_id(stream))
    });
}

/// For `set_begin_allocate_to_pool`. PyTorch passes a C++ predicate over streams by reference; it is not called, see
/// `device.rs`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_torch_begin_pool(device: c_int, id: MempoolId, _filter: *mut c_void) {
    answer(|| devices::get(device)?.begin_pool(id));
}

/// For `set_end_allocate_to_pool_fn`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_torch_end_pool(device: c_int, id: MempoolId) {
    answer(|| devices::get(device)?.end_pool(id));
}

/// For `set_release_pool`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_torch_release_pool(device: c_int, id: MempoolId) {
    answer(|| devices::get(device)?.release_pool(id));
}

/// Statistics of a device's pools, added up.
///
/// # Safety
///
/// `stats` is null or has the size in its first field.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn makeroom_torch_stats(device: c_int, stats: *mut RawStats) -> Status {
    answer(|| {
        let figures = devices::get(device)?.stats();
        // SAFETY: guaranteed by the caller.
        unsafe { options::write(stats, "stats", &figures) }
    })
}

/// Resets the peaks of a device's pools.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_torch_reset_peaks(device: c_int) -> Status {
    answer(|| {
        devices::get(device)?.reset_peaks();
        Ok(())
    })
}

/// Writes a snapshot of all pools of all devices in PyTorch's format.
///
/// # Safety
///
/// `path` is null or NUL-terminated.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn makeroom_torch_snapshot(path: *const c_char) -> Status {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let path = unsafe { path_of(path) }?;
        let pools: Vec<_> = devices::all()?.iter().flat_map(|device| device.pools()).collect();
        let snapshots: Vec<_> = pools.iter().map(|(entry, id)| entry.snapshot(*id)).collect();
        entry::save(path, &snapshots)
    })
}

/// A fraction of a device's memory in bytes.
fn share(total: Bytes, fraction: f64) -> Bytes {
    Bytes::new((total.get() as f64 * fraction) as u64)
}
