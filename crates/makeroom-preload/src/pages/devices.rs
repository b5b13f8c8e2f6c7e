//! The pages of each device, created with PyTorch's first memory there (double-checked under a lock), never freed.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use makeroom_core::{DeviceIndex, PagesUse};
use makeroom_pool::{Pages, PagesOptions, Watcher};

use super::registered;
use crate::config::config;
use crate::driver::real;
use crate::driver::types::SUCCESS;
use crate::notices::{Notice, warn_once};
use crate::pool::{self, Watch};
use crate::record::figures;

const MOST_DEVICES: usize = 64;

static PAGES: [AtomicPtr<Pages>; MOST_DEVICES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_DEVICES];
/// Devices whose memory cannot be paged: the driver serves them.
static IS_WITHOUT: [AtomicBool; MOST_DEVICES] = [const { AtomicBool::new(false) }; MOST_DEVICES];
static MAKING: Mutex<()> = Mutex::new(());

/// The pages of a device, if there are any.
pub(super) fn known(device: u8) -> Option<&'static Pages> {
    let pages = PAGES.get(usize::from(device))?.load(Ordering::Acquire);
    // SAFETY: null, or pages that were created here and are never freed.
    unsafe { pages.as_ref() }
}

/// Whether any device has pages.
pub(super) fn is_any() -> bool {
    PAGES.iter().any(|pages| !pages.load(Ordering::Relaxed).is_null())
}

/// The pages of a device; `None` if it cannot have any.
pub(super) fn open(device: u8) -> Option<&'static Pages> {
    known(device).or_else(|| make(device))
}

/// The figures of a device, for a program that reads them.
pub(crate) fn figures(device: i32) -> Option<[u64; 12]> {
    let stats = known(u8::try_from(device).ok()?).filter(|_| super::is_on())?.stats();
    let pages = stats.pages;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Some([
        pages.peak_live,
        pages.peak_physical,
        pages.physical,
        pages.on_host,
        pages.mapped,
        pages.moved,
        pages.waits,
        nanos(stats.spent),
        nanos(stats.in_reports),
        stats.reports,
        pages.created,
        pages.released,
    ])
}

/// The figures of all devices with pages, for the recording. Leaves out a device whose pages another thread has: the
/// writer must not wait for a thread that may have crashed.
fn uses() -> Vec<PagesUse> {
    let of = |number: u8| {
        let stats = known(number)?.stats_now()?;
        let pages = stats.pages;
        Some(PagesUse {
            device: DeviceIndex(number.into()),
            peak_live: pages.peak_live,
            peak_physical: pages.peak_physical,
            peak_on_host: pages.peak_on_host,
            peak_mapped: pages.peak_mapped,
            moved: pages.moved,
            waits: pages.waits,
            inside_ns: u64::try_from(stats.spent.as_nanos()).unwrap_or(u64::MAX),
            reports: stats.reports,
        })
    };
    (0..MOST_DEVICES as u8).filter_map(of).collect()
}

/// A device's primary context is about to be reset: its events end, so nothing can be proven idle anymore.
pub(crate) fn abandon(device: i32) {
    super::serve(|| {
        known(u8::try_from(device).ok()?)?.abandon();
        None
    });
}

#[cold]
fn make(device: u8) -> Option<&'static Pages> {
    let index = usize::from(device);
    if IS_WITHOUT.get(index)?.load(Ordering::Relaxed) || !has_context(device) {
        return None;
    }
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pages) = known(device) {
        return Some(pages);
    }
    let watch = |is_host| Watch::of_pages(i32::from(device), is_host, registered::is_possible);
    let watcher = |is_host| Some(Arc::new(watch(is_host)) as Arc<dyn Watcher>);
    let host_quota = config().spill.unwrap_or(0);
    let spills = host_quota > 0;
    let options = PagesOptions {
        host_quota,
        watcher: watcher(false),
        host_watcher: watcher(true),
        ..PagesOptions::default()
    };
    let Some(pages) = pool::driver().and_then(|driver| Pages::new(driver, i32::from(device), options).ok())
    else {
        IS_WITHOUT.get(index)?.store(true, Ordering::Relaxed);
        warn_once(Notice::PagesUnavailable);
        if spills {
            warn_once(Notice::PagesNotSpilled);
        }
        return None;
    };
    if spills && !pages.can_spill() {
        warn_once(Notice::NoSpill);
    }
    figures::set_pages(uses);
    PAGES.get(index)?.store(Box::into_raw(Box::new(pages)), Ordering::Release);
    known(device)
}

/// Whether a device has a primary context, which PyTorch uses. Pages must not create it.
fn has_context(device: u8) -> bool {
    let (mut flags, mut is_active) = (0, 0);
    // SAFETY: both out-parameters are valid.
    let asked =
        real::primary_state().map(|ask| unsafe { ask(device.into(), &raw mut flags, &raw mut is_active) });
    asked == Some(SUCCESS) && is_active != 0
}
