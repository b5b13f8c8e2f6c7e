//! The driver's memory pools as the program sees them: makeroom serves their memory and their figures.
//!
//! A device's default pool represents makeroom's whole pool on that device. A pool that the program creates is
//! counted separately, but its memory comes from the same place. Pools whose memory can be shared with other
//! processes, and host pools, are left to the driver.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use makeroom_core::FastMap;
use makeroom_pool::Allocator as _;

use super::calls::{INVALID_VALUE, allocate_on_stream};
use super::devices::{self, DevicePool};
use crate::driver::done::Done;
use crate::driver::place;
use crate::driver::types::{self, CuResult, DevicePointer, Handle, SUCCESS};
use crate::fields::{field, out};
use crate::record::event::RawEvent;

/// Attributes by number; the first three are 4-byte flags, the others sizes.
const RELEASE_THRESHOLD: i32 = 4;
const RESERVED: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED: i32 = 7;
const USED_HIGH: i32 = 8;
/// `CUmemPoolProps`: allocType, **handleTypes**, **location**.
const HANDLE_TYPES: usize = 4;
const LOCATION: usize = 8;

/// A pool that the program created.
#[derive(Clone, Copy, Debug, Default)]
struct Created {
    device: i32,
    used: u64,
    high: u64,
}

#[derive(Debug, Default)]
struct Pools {
    created: FastMap<u64, Created>,
    /// The created pool that an address belongs to, and its size.
    blocks: FastMap<u64, (u64, u64)>,
}

static POOLS: Mutex<Option<Pools>> = Mutex::new(None);
/// Few programs create pools; in the rest, frees skip the lock.
static HAS_CREATED: AtomicBool = AtomicBool::new(false);

fn lock() -> MutexGuard<'static, Option<Pools>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a pool handle refers to.
enum Meaning {
    /// A device's default pool.
    Default(&'static DevicePool),
    /// A pool that the program created.
    Created(Created),
}

fn meaning(pool: Handle) -> Option<Meaning> {
    let handle = pool as u64;
    if let Some(created) = lock().as_ref().and_then(|pools| pools.created.get(&handle).copied()) {
        return Some(Meaning::Created(created));
    }
    devices::all().find(|pool| pool.default_pool == handle).map(Meaning::Default)
}

/// The device of one of the driver's pools, if makeroom serves it or will.
pub(super) fn device_of(pool: Handle) -> Option<i32> {
    let handle = pool as u64;
    let created = lock().as_ref().and_then(|pools| pools.created.get(&handle).map(|created| created.device));
    created.or_else(|| devices::of_default_pool(handle))
}

/// Notes a pool that the program created, if makeroom can serve it.
///
/// # Safety
///
/// The pointers are those of a `cuMemPoolCreate` call that returned `done`.
pub(crate) unsafe fn created(
    event: RawEvent,
    pool: *const Handle,
    properties: *const c_void,
    done: Done,
) -> RawEvent {
    if super::is_on() && done.is_ok() {
        // SAFETY: the driver accepted the structure and filled the handle.
        let (types, (is_device, device), handle) = unsafe {
            (field::<i32>(properties, HANDLE_TYPES), types::location(properties, LOCATION), done.handle(pool))
        };
        if types == 0 && is_device {
            let pools = &mut *lock();
            HAS_CREATED.store(true, Ordering::Relaxed);
            pools.get_or_insert_default().created.insert(handle, Created { device, used: 0, high: 0 });
        }
    }
    event
}

/// A pool that the program created is destroyed; its memory stays until it is freed.
pub(crate) fn destroyed(pool: Handle) -> Option<CuResult> {
    if let Some(pools) = lock().as_mut() {
        pools.created.remove(&(pool as u64));
    }
    None
}

/// Serves `cuMemAllocFromPoolAsync`.
///
/// # Safety
///
/// `pointer` is the program's out-parameter for the address, or null.
pub(crate) unsafe fn allocate_from(
    pointer: *mut DevicePointer,
    bytes: usize,
    pool: Handle,
    stream: Handle,
) -> Option<CuResult> {
    let place = place::of_stream(stream)?;
    // The first allocation creates the device's pool, which knows its default.
    let serving = devices::serving(place)?;
    let meaning = meaning(pool)?;
    // The pool may belong to a different device than the stream: leave that to the driver.
    let is_here = match &meaning {
        Meaning::Default(default) => std::ptr::eq(*default, serving),
        Meaning::Created(created) => created.device == i32::from(place.device),
    };
    if !is_here {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    let result = unsafe { allocate_on_stream(pointer, bytes, stream) }?;
    if let Meaning::Created(..) = meaning
        && result == SUCCESS
        && let Some(pools) = lock().as_mut()
    {
        // SAFETY: the pool has just filled it.
        let address = unsafe { out(pointer) };
        pools.blocks.insert(address, (pool as u64, bytes as u64));
        if let Some(created) = pools.created.get_mut(&(pool as u64)) {
            created.used += bytes as u64;
            created.high = created.high.max(created.used);
        }
    }
    Some(result)
}

/// Subtracts a freed address from the created pool that it came from.
pub(super) fn freed(address: u64) {
    if HAS_CREATED.load(Ordering::Relaxed)
        && let Some(pools) = lock().as_mut()
        && let Some((pool, bytes)) = pools.blocks.remove(&address)
        && let Some(created) = pools.created.get_mut(&pool)
    {
        created.used = created.used.saturating_sub(bytes);
    }
}

/// Serves `cuMemPoolGetAttribute`.
///
/// # Safety
///
/// `value` is the program's out-parameter for the value, or null.
pub(crate) unsafe fn attribute(pool: Handle, attribute: i32, value: *mut c_void) -> Option<CuResult> {
    if !(RESERVED..=USED_HIGH).contains(&attribute) || value.is_null() {
        return None;
    }
    let figure = match meaning(pool)? {
        Meaning::Default(pool) => {
            let stats = pool.pool.stats();
            match attribute {
                RESERVED => stats.reserved,
                RESERVED_HIGH => stats.peak_reserved,
                USED => stats.live,
                _ => stats.peak_live,
            }
        }
        Meaning::Created(created) => {
            if matches!(attribute, RESERVED | USED) {
                created.used
            } else {
                created.high
            }
        }
    };
    // SAFETY: not null, so it is the program's out-parameter for a size.
    unsafe { value.cast::<u64>().write_unaligned(figure) };
    Some(SUCCESS)
}

/// Serves `cuMemPoolSetAttribute` for the high-water marks, which it resets. The driver keeps all other attributes,
/// so that they read back.
///
/// # Safety
///
/// `value` is the pointer that the program passed.
pub(crate) unsafe fn set_attribute(pool: Handle, attribute: i32, value: *const c_void) -> Option<CuResult> {
    if !matches!(attribute, RESERVED_HIGH | USED_HIGH) || value.is_null() {
        return None;
    }
    debug_assert!(attribute > RELEASE_THRESHOLD);
    let meaning = meaning(pool)?;
    // SAFETY: not null, and these attributes are sizes.
    if unsafe { field::<u64>(value, 0) } != 0 {
        return Some(INVALID_VALUE);
    }
    match meaning {
        Meaning::Default(pool) => pool.pool.reset_peaks(),
        Meaning::Created(..) => {
            if let Some(created) = lock().as_mut().and_then(|pools| pools.created.get_mut(&(pool as u64))) {
                created.high = created.used;
            }
        }
    }
    Some(SUCCESS)
}

/// Handles `cuMemPoolTrimTo`. The driver's own pool may hold memory too, from captures and other contexts, so the
/// driver is called as well. Memory cached for a created pool is in the device's pool and serves every request.
pub(crate) fn trim(pool: Handle, keep: usize) -> Option<CuResult> {
    if let Meaning::Default(pool) = meaning(pool)?
        && !super::is_broken()
    {
        pool.allocator.trim(keep as u64);
    }
    None
}
