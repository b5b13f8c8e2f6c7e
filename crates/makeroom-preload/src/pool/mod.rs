//! `run --pool`: the program's calls for device memory are answered by makeroom's own pool.
//!
//! ```text
//! calls.rs     cuMemAlloc, cuMemAllocAsync and their frees      devices.rs   one pool per device, made at first use
//! pools.rs     the driver's pools, as the program sees them     watch.rs     the pool's own memory: limit and recording
//! peers.rs     other devices that use the memory
//! ```
//!
//! Each call here answers with a result, or with `None`: then the driver is asked as if there were no pool. That is
//! so for everything the pool cannot do as the driver does it: calls in a capture, contexts other than the device's
//! primary one, default streams of single threads, pools whose memory is to be shared. What the pool handed out it
//! also takes back, whatever happens meanwhile: an address of its ranges never reaches the driver's frees.

mod calls;
mod devices;
mod peers;
mod pools;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use calls::{allocate, allocate_everywhere, free, free_on, retire_stream};
pub(crate) use devices::{abandon, exported};
pub(crate) use peers::{enabled as peer_enabled, opened as pool_opened};
pub(crate) use pools::{allocate_from, attribute, created, destroyed, set_attribute, trim};
pub(crate) use watch::holds;

use crate::config::config;
use crate::driver::types::CuResult;
use crate::errno;
use crate::notices::{Notice, raise_loudly};

/// After a bug: nothing new is served, and what comes back is kept.
static IS_BROKEN: AtomicBool = AtomicBool::new(false);

/// Whether the program's memory comes from the pool.
#[inline]
pub(crate) fn is_on() -> bool {
    config().pool && !config().is_off
}

/// Serves a call, if the pool can. No panic gets out, and `errno` stays as it is.
#[inline]
pub(crate) fn serve(call: impl FnOnce() -> Option<CuResult>) -> Option<CuResult> {
    if !is_on() {
        return None;
    }
    serve_on(call)
}

fn serve_on(call: impl FnOnce() -> Option<CuResult>) -> Option<CuResult> {
    let _errno = errno::Kept::new();
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        IS_BROKEN.store(true, Ordering::Relaxed);
        raise_loudly(Notice::PoolFailed);
        None
    })
}

/// Whether a bug has put the pool out of use.
fn is_broken() -> bool {
    IS_BROKEN.load(Ordering::Relaxed)
}
