//! The driver calls of PyTorch's expandable segments, and its reports of tensors.
//!
//! `None` passes a call on to the driver as if there were no pages. The device comes from the properties, the token, the
//! range or the report, and never from the current context: PyTorch calls on threads that have none.

use std::ffi::c_void;

use makeroom_cuda::{Access, AllocationProperties, Code, Location};
use makeroom_pool::{Pages, Taken, is_token};

use super::{devices, registered, reservations};
use crate::driver::capture;
use crate::driver::done::Done;
use crate::driver::types::{CuResult, DevicePointer, SUCCESS};
use crate::fields::field;
use crate::notices::{Notice, warn_once};
use crate::pool;
use crate::record::event::RawEvent;

/// `CUmemAccessDesc`: the kind of location, its number, and flags, of 4 bytes each.
const ACCESS_BYTES: usize = 12;
const DEVICE: i32 = 1;
const HOST_NODE: i32 = 3;
/// More descriptions than there are devices.
const MOST_DESCRIPTIONS: usize = 256;

/// `CUDA_ERROR_ILLEGAL_ADDRESS`.
const ILLEGAL_ADDRESS: CuResult = 700;

/// A driver's code as the program gets it.
pub(super) fn code(result: Result<(), Code>) -> CuResult {
    result.map_or_else(|code| code.0.cast_signed(), |()| SUCCESS)
}

/// A `CUmemLocation`; `None` for kinds that PyTorch does not use.
pub(super) fn where_is(kind: i32, number: i32) -> Option<Location> {
    match kind {
        DEVICE => Some(Location::device(number)),
        HOST_NODE => Some(Location::host_node(number)),
        _ => None,
    }
}

/// The pages that a token belongs to.
pub(super) fn of_token(handle: u64) -> Option<&'static Pages> {
    devices::known(is_token(handle)?)
}

/// The pages that an address belongs to.
pub(super) fn of_address(address: DevicePointer) -> Option<&'static Pages> {
    devices::known(reservations::find(address)?.device?)
}

/// A call failed. An illegal access makes all later calls fail, so one of them comes here.
#[cold]
pub(crate) fn failed(result: CuResult) {
    if result == ILLEGAL_ADDRESS && super::is_on() && devices::is_any() {
        warn_once(Notice::PagesIllegalAccess);
    }
}

/// Addresses were reserved: remembers those of PyTorch's allocator.
pub(crate) fn reserved(event: RawEvent, address: DevicePointer, bytes: u64, done: Done) -> RawEvent {
    if super::is_on() && done.is_ok() && pool::is_direct_torch() {
        reservations::add(address, bytes);
    }
    event
}

/// Serves `cuMemAddressFree`: the driver frees the addresses, unless memory under them could not be released, because the
/// GPU may still use it. Then they stay reserved, so that nothing else is ever placed there; only addresses are lost.
pub(crate) fn free_range(address: DevicePointer) -> Option<CuResult> {
    let device = reservations::starting_at(address)?.device;
    let is_free = device.and_then(devices::known).is_none_or(|pages| pages.free_range(address));
    if !is_free {
        return Some(SUCCESS);
    }
    reservations::remove(address);
    None
}

/// Serves `cuMemCreate`.
///
/// # Safety
///
/// `handle` and `properties` are the program's parameters, or null.
pub(crate) unsafe fn create(
    handle: *mut u64,
    bytes: usize,
    properties: *const c_void,
    flags: u64,
) -> Option<CuResult> {
    let is_paged = !handle.is_null() && !properties.is_null() && flags == 0 && !pool::is_broken();
    if !is_paged || !reservations::is_any() || !pool::is_direct_torch() {
        return None;
    }
    // SAFETY: not null; the driver reads the same structure of this size.
    let properties = AllocationProperties::from_bytes(&unsafe { field::<[u8; 32]>(properties, 0) });
    let device = u8::try_from(properties.location().device_number()?).ok()?;
    let pages = devices::open(device)?;
    if registered::is_possible() {
        pages.keep_large();
    }
    match pages.create(bytes as u64, &properties)? {
        Ok(token) => {
            // SAFETY: not null, so it is the program's out-parameter for the handle.
            unsafe { handle.write_unaligned(token) };
            Some(SUCCESS)
        }
        Err(error) => Some(error.0.cast_signed()),
    }
}

/// Serves `cuMemMap`.
pub(crate) fn map(address: DevicePointer, bytes: usize, offset: usize, handle: u64) -> Option<CuResult> {
    let device = is_token(handle)?;
    let invalid = Some(code(Err(Code::INVALID_VALUE)));
    let Some(range) = reservations::assign(address, device).filter(|_| offset == 0) else { return invalid };
    let mapped = devices::known(device)?.map(handle, address, bytes as u64, (range.start, range.bytes))?;
    Some(code(mapped.map(warn)))
}

/// Reports memory that is missing or the host's, once.
fn warn(taken: Taken) {
    if taken.unbacked > 0 {
        warn_once(Notice::PagesMissing);
    } else if taken.debt > 0 {
        warn_once(Notice::PagesOnHost);
    } else if taken.on_host > 0 {
        warn_once(Notice::PagesSpilled);
    }
}

/// Serves `cuMemSetAccess`.
///
/// # Safety
///
/// `access` is null or has `count` descriptions.
pub(crate) unsafe fn set_access(
    address: DevicePointer,
    bytes: usize,
    access: *const c_void,
    count: usize,
) -> Option<CuResult> {
    let pages = of_address(address)?;
    if access.is_null() || count > MOST_DESCRIPTIONS {
        return None;
    }
    let describe = |number: usize| {
        let at = number * ACCESS_BYTES;
        // SAFETY: guaranteed by the caller.
        let (kind, id, flags) =
            unsafe { (field::<i32>(access, at), field::<i32>(access, at + 4), field::<i32>(access, at + 8)) };
        Some((
            where_is(kind, id)?,
            if flags == 0 {
                Access::None
            } else if flags == 1 {
                Access::Read
            } else {
                Access::ReadWrite
            },
        ))
    };
    let who: Option<Vec<_>> = (0..count).map(describe).collect();
    Some(code(match who {
        Some(who) => pages.set_access(address, bytes as u64, &who)?,
        None => Err(Code::INVALID_VALUE),
    }))
}

/// Serves `cuMemUnmap`.
pub(crate) fn unmap(address: DevicePointer, bytes: usize) -> Option<CuResult> {
    of_address(address)?.unmap(address, bytes as u64).map(code)
}

/// Serves `cuMemRelease`.
pub(crate) fn release(handle: u64) -> Option<CuResult> {
    of_token(handle)?.release(handle).map(code)
}

/// PyTorch allocated a block (`size` > 0) or freed it (< 0), and `live` bytes are in blocks now. Afterwards an allocated block
/// has memory.
pub(crate) fn report(address: u64, size: i64, live: u64, device: u8) {
    super::serve(|| {
        let pages = devices::known(device)?;
        if size < 0 {
            pages.give(address, size.unsigned_abs());
            return None;
        }
        if capture::is_open() {
            // A graph may use any of the range in every replay, also where blocks were freed.
            pages.exempt(address);
        }
        warn(pages.take(address, size.unsigned_abs(), live)?);
        None
    });
}
