//! One pool per device, made when the program first asks for memory there, and kept for good.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use makeroom_core::Bytes;
use makeroom_cuda::{Attribute, Driver};
use makeroom_pool::layers::{Spill, SpillOptions};
use makeroom_pool::{Allocator, Options, Pool};

use super::peers;
use super::watch::Watch;
use crate::config::config;
use crate::driver::place::{self, Place};
use crate::driver::types::CuResult;
use crate::lookup;
use crate::notices::{Notice, raise_loudly};

/// As many as a mask has bits.
pub(super) const MOST_DEVICES: usize = 64;

/// The pool of a device.
#[derive(Debug)]
pub(super) struct DevicePool {
    /// The device's primary context: the only one that the pool serves.
    pub(super) context: u64,
    /// The handle of the driver's own pool, which this one stands for.
    pub(super) default_pool: u64,
    pub(super) pool: Pool,
    pub(super) allocator: Box<dyn Allocator>,
    /// The host memory for what does not fit.
    pub(super) host: Option<Pool>,
}

static POOLS: [AtomicPtr<DevicePool>; MOST_DEVICES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_DEVICES];
/// Devices whose pool could not be made: the driver serves them.
static IS_WITHOUT: [AtomicBool; MOST_DEVICES] = [const { AtomicBool::new(false) }; MOST_DEVICES];
static MAKING: Mutex<()> = Mutex::new(());

/// The pool that serves the calling thread's context.
pub(super) fn current() -> Option<&'static DevicePool> {
    let place = place::current();
    let pool = known(place.device).or_else(|| make(place))?;
    (pool.context == place.context && !super::is_broken()).then_some(pool)
}

/// The pools there are.
pub(super) fn all() -> impl Iterator<Item = &'static DevicePool> {
    (0..MOST_DEVICES as u8).filter_map(known)
}

/// The pool of a device, if there is one.
pub(super) fn known(device: u8) -> Option<&'static DevicePool> {
    let pool = POOLS.get(usize::from(device))?.load(Ordering::Acquire);
    // SAFETY: null, or a pool that was made here and is never freed.
    unsafe { pool.as_ref() }
}

#[cold]
fn make(place: Place) -> Option<&'static DevicePool> {
    let index = usize::from(place.device);
    if place.context == 0 || IS_WITHOUT.get(index)?.load(Ordering::Relaxed) {
        return None;
    }
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = known(place.device) {
        return Some(pool);
    }
    let Some(pool) = driver().and_then(|driver| open(driver, i32::from(place.device))) else {
        IS_WITHOUT.get(index)?.store(true, Ordering::Relaxed);
        raise_loudly(Notice::PoolUnavailable);
        return None;
    };
    POOLS.get(index)?.store(Box::into_raw(Box::new(pool)), Ordering::Release);
    known(place.device)
}

fn open(driver: &'static Driver, device: i32) -> Option<DevicePool> {
    let watcher = |is_host| Some(Arc::new(Watch::new(device, is_host)) as _);
    let options = Options { keeps_sites: false, watcher: watcher(false), ..Options::default() };
    let pool = Pool::new(driver, device, options).ok()?;
    let context = pool.context().handle();
    let host = config().spill.map(Bytes::new).and_then(|quota| {
        let options =
            Options { keeps_sites: false, watcher: watcher(true), limit: Some(quota), ..Options::default() };
        let card = driver.device(device).ok()?;
        let can = |attribute| card.attribute(attribute).unwrap_or(0);
        if can(Attribute::HostNodeVirtualMemory) == 0 {
            raise_loudly(Notice::NoSpill);
            return None;
        }
        let made = Pool::on_host(driver, device, can(Attribute::HostNode).max(0), options);
        made.inspect_err(|_| raise_loudly(Notice::NoSpill)).ok().map(|host| (host, quota))
    });
    let allocator: Box<dyn Allocator> = match &host {
        Some((host, quota)) => {
            let options = SpillOptions::with_quota(*quota);
            Box::new(Spill::over(pool.clone(), Box::new(host.clone()), options))
        }
        None => Box::new(pool.clone()),
    };
    let host = host.map(|(host, _)| host);
    let mut default_pool = 0;
    // SAFETY: the result has a place. A driver without pools has no calls for them either.
    let _ = unsafe { driver.device_default_pool(&raw mut default_pool, device) };
    let pool = DevicePool { context, default_pool, pool, allocator, host };
    peers::open(&pool, device);
    Some(pool)
}

/// The device whose default pool this is.
pub(super) fn of_default_pool(handle: u64) -> Option<i32> {
    let driver = driver()?;
    (0..driver.devices().ok()?).find(|&device| {
        let mut pool = 0;
        // SAFETY: the result has a place.
        unsafe { driver.device_default_pool(&raw mut pool, device) }.is_ok() && pool == handle
    })
}

/// The driver's own functions, as the pool calls them: past all hooks.
fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let driver = DRIVER.get_or_init(|| {
        let library = lookup::loaded(c"libcuda.so.1")?;
        let find = |name: &CStr| NonNull::new(lookup::real(library, name)).map(NonNull::cast::<c_void>);
        // SAFETY: the library is the driver that the program itself uses, held loaded.
        unsafe { Driver::resolve(find) }.ok()
    });
    driver.as_ref()
}

/// A device's primary context is about to be reset: everything in it ends, and so does the pool's memory.
pub(crate) fn abandon(device: i32) -> Option<CuResult> {
    let pool = u8::try_from(device).ok().and_then(known)?;
    // SAFETY: the program gives up everything in this context, which is all that the pool serves.
    let _ = unsafe { pool.pool.abandon() };
    if let Some(host) = &pool.host {
        // SAFETY: as above.
        let _ = unsafe { host.abandon() };
    }
    None
}

/// The program wants to share memory with another process in a way that only the driver's own memory can be.
pub(crate) fn exported(address: u64) -> Option<CuResult> {
    if super::holds(address) {
        raise_loudly(Notice::PoolCannotExport);
    }
    None
}
