//! One pool per device, created when the program first allocates there (double-checked under a lock), never freed.

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
use crate::driver::place::{self, ContextOnDevice};
use crate::driver::real;
use crate::driver::types::{CuResult, SUCCESS};
use crate::notices::{Notice, raise, warn_once};
use crate::{errno, lookup};

/// One bit each in a 64-bit mask.
pub(super) const MOST_DEVICES: usize = 64;

/// The pool of a device.
#[derive(Debug)]
pub(super) struct DevicePool {
    /// The device's primary context, the only one that the pool serves.
    pub(super) context: u64,
    /// Handle of the driver's default pool, which this one replaces.
    pub(super) default_pool: u64,
    pub(super) pool: Pool,
    pub(super) allocator: Box<dyn Allocator>,
    /// Host memory for spilling.
    pub(super) host: Option<Pool>,
    /// A stream that waits for streams of other contexts; `None` if it could not be created.
    pub(super) relay: OnceLock<Option<u64>>,
}

static POOLS: [AtomicPtr<DevicePool>; MOST_DEVICES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_DEVICES];
/// Devices whose pool could not be created: the driver serves them.
static IS_WITHOUT: [AtomicBool; MOST_DEVICES] = [const { AtomicBool::new(false) }; MOST_DEVICES];
static MAKING: Mutex<()> = Mutex::new(());

/// The last place whose context is not its device's primary one: the driver serves it.
static OTHER: Mutex<Option<ContextOnDevice>> = Mutex::new(None);

/// The pool that serves the calling thread's context.
pub(super) fn current() -> Option<&'static DevicePool> {
    serving(place::current())
}

/// The pool that serves a context.
pub(super) fn serving(place: ContextOnDevice) -> Option<&'static DevicePool> {
    let pool = known(place.device).or_else(|| make(place))?;
    if pool.context != place.context {
        raise(Notice::PoolOtherContext);
        return None;
    }
    (!super::is_broken()).then_some(pool)
}

/// Bytes that the pool of a device has cached.
pub(crate) fn cached(device: u8) -> u64 {
    let ask = || Some(known(device)?.pool.stats().cached);
    if super::is_on() && !super::is_broken() { super::unless_broken(ask).flatten().unwrap_or(0) } else { 0 }
}

/// The driver has no memory for one of the program's calls: releases the pools' cached memory. Returns whether there
/// was any.
#[cold]
pub(crate) fn gives_back() -> bool {
    if !super::is_on() || super::is_broken() {
        return false;
    }
    let _errno = errno::ErrnoGuard::new();
    let trim = || all().map(|pool| pool.pool.trim(0)).sum::<u64>();
    super::unless_broken(trim).is_some_and(|bytes| bytes > 0)
}

/// All pools.
pub(super) fn all() -> impl Iterator<Item = &'static DevicePool> {
    (0..MOST_DEVICES as u8).filter_map(known)
}

/// The pool of a device, if there is one.
pub(super) fn known(device: u8) -> Option<&'static DevicePool> {
    let pool = POOLS.get(usize::from(device))?.load(Ordering::Acquire);
    // SAFETY: null, or a pool that was created here and is never freed.
    unsafe { pool.as_ref() }
}

#[cold]
fn make(place: ContextOnDevice) -> Option<&'static DevicePool> {
    let index = usize::from(place.device);
    if place.context == 0 || IS_WITHOUT.get(index)?.load(Ordering::Relaxed) {
        return None;
    }
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = known(place.device) {
        return Some(pool);
    }
    let mut other = OTHER.lock().unwrap_or_else(PoisonError::into_inner);
    if *other == Some(place) || !is_primary(place) {
        raise(Notice::PoolOtherContext);
        *other = Some(place);
        return None;
    }
    drop(other);
    let Some(pool) = driver().and_then(|driver| open(driver, i32::from(place.device))) else {
        IS_WITHOUT.get(index)?.store(true, Ordering::Relaxed);
        warn_once(Notice::PoolUnavailable);
        return None;
    };
    POOLS.get(index)?.store(Box::into_raw(Box::new(pool)), Ordering::Release);
    known(place.device)
}

/// Whether a context is its device's primary one. The check must not create one in a program that has none.
fn is_primary(place: ContextOnDevice) -> bool {
    let device = i32::from(place.device);
    let (mut flags, mut is_active) = (0, 0);
    // SAFETY: both out-parameters are valid.
    let asked = real::primary_state().map(|ask| unsafe { ask(device, &raw mut flags, &raw mut is_active) });
    if asked != Some(SUCCESS) || is_active == 0 {
        return false;
    }
    let Some(primary) = driver().and_then(|driver| driver.device(device).ok()?.retain_primary().ok()) else {
        return false;
    };
    let is_primary = primary.handle() == place.context;
    // SAFETY: the primary context was active before, and nothing was created in it through this reference.
    let _ = unsafe { primary.end() };
    is_primary
}

/// The program released a device's primary context: so does the pool, unless its memory is in use.
pub(super) fn let_go(device: i32) {
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((index, pool)) = usize::try_from(device).ok().zip(u8::try_from(device).ok().and_then(known))
    else {
        return;
    };
    let live = |pool: &Pool| pool.stats().live;
    if live(&pool.pool) + pool.host.as_ref().map_or(0, live) > 0 {
        return;
    }
    if let Some(place) = POOLS.get(index) {
        // Never freed: other threads may still use it.
        place.store(std::ptr::null_mut(), Ordering::Release);
    }
    give_up(pool);
    let holds = 1 + i32::from(pool.host.is_some());
    for _ in 0..holds {
        // SAFETY: the pools' own references; their memory is released, and nothing of theirs is used anymore.
        let _ = unsafe { pool.pool.driver().primary_release(device) };
    }
}

fn give_up(pool: &DevicePool) {
    // SAFETY: the program gives up everything in this context, the only one that the pool serves.
    let _ = unsafe { pool.pool.abandon() };
    if let Some(host) = &pool.host {
        // SAFETY: as above.
        let _ = unsafe { host.abandon() };
    }
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
            warn_once(Notice::NoSpill);
            return None;
        }
        let made = Pool::on_host(driver, device, can(Attribute::HostNode).max(0), options);
        made.inspect_err(|_| warn_once(Notice::NoSpill)).ok().map(|host| (host, quota))
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
    // SAFETY: the out-parameter is valid. A driver without pools fails, and 0 is then no pool's handle.
    let _ = unsafe { driver.device_default_pool(&raw mut default_pool, device) };
    let pool = DevicePool { context, default_pool, pool, allocator, host, relay: OnceLock::new() };
    peers::open(&pool, device);
    Some(pool)
}

/// The device that has this default pool.
pub(super) fn of_default_pool(handle: u64) -> Option<i32> {
    let driver = driver()?;
    (0..driver.devices().ok()?).find(|&device| {
        let mut pool = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { driver.device_default_pool(&raw mut pool, device) }.is_ok() && pool == handle
    })
}

/// The driver's own functions, without hooks, for the pool.
pub(crate) fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let driver = DRIVER.get_or_init(|| {
        let library = lookup::loaded(c"libcuda.so.1")?;
        let find = |name: &CStr| NonNull::new(lookup::real(library, name)).map(NonNull::cast::<c_void>);
        // SAFETY: the library is the driver that the program itself uses, and stays loaded.
        unsafe { Driver::resolve(find) }.ok()
    });
    driver.as_ref()
}

/// A device's primary context is about to be reset: everything in it goes, including the pool's memory.
pub(crate) fn abandon(device: i32) -> Option<CuResult> {
    let pool = u8::try_from(device).ok().and_then(known)?;
    give_up(pool);
    None
}

/// The program is about to share memory with another process in a way that works only with the driver's own memory.
pub(crate) fn exported(address: u64) -> Option<CuResult> {
    if super::holds(address) {
        warn_once(Notice::PoolCannotExport);
    }
    None
}
