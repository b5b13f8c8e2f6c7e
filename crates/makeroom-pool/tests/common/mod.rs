//! Shared test support: the software GPU, loaded once into the test process, drivers that lack a feature, and a check of
//! the pool's figures.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses part of it, and a test may panic")]

pub(crate) mod aside;
pub(crate) mod segments;

use std::ffi::{CStr, c_void};
use std::ops::Deref;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use makeroom_cuda::{Context, Driver};
use makeroom_place::pool::BlockState;
use makeroom_pool::{Allocator as _, Pool};
use makeroom_simcard::testing::{SoftwareGpu, Stage};

/// The machine: two cards, and contexts without overhead so that figures are exact.
const MACHINE: &str = "devices=2,memory=1GiB,context=0,module=0";

type GetAttribute = unsafe extern "C" fn(*mut i32, u32, i32) -> u32;

static GET_ATTRIBUTE: OnceLock<GetAttribute> = OnceLock::new();

/// `cuDeviceGetAttribute` of a driver that does not know the host node attribute.
unsafe extern "C" fn answer_no(value: *mut i32, attribute: u32, device: i32) -> u32 {
    if attribute == makeroom_cuda::Attribute::HostNodeVirtualMemory as u32 {
        return 1;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { GET_ATTRIBUTE.get().unwrap()(value, attribute, device) }
}

/// The software GPU's driver, locked for one test at a time.
pub(crate) struct Gpu {
    pub(crate) driver: &'static Driver,
    software: SoftwareGpu,
    context: Context,
}

/// Its clock and its faults.
impl Deref for Gpu {
    type Target = SoftwareGpu;

    fn deref(&self) -> &SoftwareGpu {
        &self.software
    }
}

/// Waits for earlier tests, and makes the first card's context current.
pub(crate) fn gpu(test_file: &str) -> MutexGuard<'static, Gpu> {
    static GPU: OnceLock<Mutex<Gpu>> = OnceLock::new();
    let gpu = GPU.get_or_init(|| Mutex::new(open(test_file))).lock().unwrap_or_else(PoisonError::into_inner);
    gpu.make_current();
    gpu
}

fn open(test_file: &str) -> Gpu {
    let stage =
        Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("pool").join(test_file)).with_machine(MACHINE);
    // SAFETY: every test of the file goes through `gpu` first and waits there, so no thread reads the environment.
    let software = unsafe { SoftwareGpu::load(&stage) };
    let driver = Driver::open(software.path().to_str().unwrap()).unwrap();
    let driver: &'static Driver = Box::leak(Box::new(driver));
    let context = driver.device(0).unwrap().retain_primary().unwrap();
    Gpu { driver, software, context }
}

impl Gpu {
    /// Makes the first card's context current.
    pub(crate) fn make_current(&self) {
        self.context.make_current().unwrap();
    }

    /// The same driver with only some of its functions.
    pub(crate) fn resolve(&self, is_there: impl Fn(&CStr) -> bool) -> &'static Driver {
        let find = |name: &CStr| self.symbol(name).filter(|_| is_there(name));
        // SAFETY: the functions are the driver's, which is never unloaded.
        Box::leak(Box::new(unsafe { Driver::resolve(find) }.unwrap()))
    }

    /// The same driver, reporting that it cannot map memory of a host node.
    pub(crate) fn without_host_nodes(&self) -> &'static Driver {
        let name = c"cuDeviceGetAttribute";
        // SAFETY: the type matches the function.
        let _ = GET_ATTRIBUTE.set(unsafe { self.function::<GetAttribute>(name) });
        let find = |wanted: &CStr| {
            if wanted == name {
                return NonNull::new(answer_no as *mut c_void);
            }
            self.symbol(wanted)
        };
        // SAFETY: the functions are the driver's, which is never unloaded, and a wrapper for one.
        Box::leak(Box::new(unsafe { Driver::resolve(find) }.unwrap()))
    }

    /// Resets a card's primary context while it is in use.
    pub(crate) fn reset_primary(&self, device: i32) {
        type Reset = unsafe extern "C" fn(i32) -> u32;
        // SAFETY: the type matches the function, which takes a number only.
        assert_eq!(unsafe { self.function::<Reset>(c"cuDevicePrimaryCtxReset_v2")(device) }, 0);
    }
}

/// Installs the context that replaces one that was reset.
pub(crate) fn renew_context(mut gpu: MutexGuard<'static, Gpu>, context: Context) {
    gpu.context = context;
}

/// The pool's statistics and snapshot agree: nothing overlaps, everything adds up.
pub(crate) fn check_account(pool: &Pool) {
    let (stats, picture) = (pool.stats(), pool.snapshot());
    assert_eq!(stats.reserved, stats.live + stats.rounding + stats.cached, "{stats:?}");
    assert!(stats.pending <= stats.live, "{stats:?}");
    let (mut end, mut live) = (0, 0);
    let pieces = picture.segments.iter().flat_map(|segment| &segment.pieces).chain(&picture.unmapped);
    let mut handles: Vec<u64> = pieces.map(|piece| piece.handle.0).collect();
    handles.sort_unstable();
    assert!(handles.windows(2).all(|two| two[0] != two[1]), "a handle lies in two places: {picture:?}");
    for segment in &picture.segments {
        assert!(segment.address.0 >= end, "segments overlap: {picture:?}");
        end = segment.address.0 + segment.size;
        assert_eq!(segment.size, segment.pieces.iter().map(|piece| piece.size).sum::<u64>());
        let mut next = segment.address.0;
        for block in &segment.blocks {
            assert_eq!(block.address.0, next, "blocks lie one behind the other");
            next += block.size;
            match block.state {
                BlockState::Live { requested, .. } | BlockState::Pending { requested, .. } => {
                    assert!(requested <= block.size);
                    live += requested;
                }
                BlockState::Free => {}
            }
        }
        assert_eq!(next, end, "blocks fill their segment");
    }
    assert_eq!(live, stats.live);
}
