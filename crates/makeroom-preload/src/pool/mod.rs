//! `run --pool`: makeroom's own pool serves the program's device memory.
//!
//! ```text
//! calls.rs     cuMemAlloc, cuMemAllocAsync and their frees      devices.rs   one pool per device, created at first use
//! pools.rs     the driver's pools, as the program sees them     watch.rs     the pool's own memory: limit and recording
//! peers.rs     peer access                                      holds.rs     references to the primary contexts
//! foreign.rs   frees on streams of other contexts               callers.rs   callers that need the driver's own memory
//! range.rs     the allocation that contains an address          sharing.rs   tensors shared with other processes
//! ```
//!
//! Each call here returns a result, or `None` to pass the call on to the driver as if there were no pool. It does
//! that for everything the pool cannot do as the driver does: calls in a capture, contexts other than the device's
//! primary one, per-thread default streams, pools whose memory can be shared, and callers that share theirs. Memory
//! from the pool always goes back to the pool: an address in its ranges never reaches the driver's frees.

mod callers;
mod calls;
mod devices;
mod foreign;
mod holds;
mod peers;
mod pools;
mod range;
mod sharing;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use callers::is_direct_torch;
pub(crate) use calls::{allocate_everywhere, allocate_on_stream, free, free_on, retire_stream};
pub(crate) use devices::{abandon, cached, driver, exported, gives_back};
pub(crate) use holds::{released, retained};
pub(crate) use peers::{enabled as peer_enabled, opened as pool_opened};
pub(crate) use pools::{allocate_from, attribute, created, destroyed, set_attribute, trim};
pub(crate) use range::{address_range, range_attribute, range_attributes};
pub(crate) use sharing::exports;
pub(crate) use watch::{Watch, holds};

use crate::config::config;
use crate::driver::types::{CuResult, SUCCESS};
use crate::notices::{Notice, warn_once};
use crate::{cost, errno, state};

/// Set after a bug: nothing new is served, and freed memory is kept.
static IS_BROKEN: AtomicBool = AtomicBool::new(false);

/// Whether the pool serves the program's memory.
#[inline]
pub(crate) fn is_on() -> bool {
    config().pool && !config().is_off && !state::is_child()
}

/// Serves a call, if the pool can. Panics are caught, and `errno` is preserved.
#[inline]
pub(crate) fn serve(call: impl FnOnce() -> Option<CuResult>) -> Option<CuResult> {
    if !is_on() {
        return None;
    }
    serve_on(call)
}

fn serve_on(call: impl FnOnce() -> Option<CuResult>) -> Option<CuResult> {
    let _errno = errno::ErrnoGuard::new();
    cost::of_pool(|| unless_broken(call).flatten())
}

/// Runs a call. `None` after a panic, from which point nothing new is served.
fn unless_broken<T>(call: impl FnOnce() -> T) -> Option<T> {
    let answer = catch_unwind(AssertUnwindSafe(call)).ok();
    if answer.is_none() {
        IS_BROKEN.store(true, Ordering::Relaxed);
        warn_once(Notice::PoolFailed);
    }
    answer
}

/// Frees memory. An address from the pool never reaches the driver's frees: if a bug prevents the free, the memory
/// leaks and the call returns success.
fn taking_back(address: u64, call: impl FnOnce() -> Option<CuResult>) -> Option<CuResult> {
    unless_broken(call).unwrap_or_else(|| holds(address).then_some(SUCCESS))
}

/// Whether a bug has disabled the pool.
pub(crate) fn is_broken() -> bool {
    IS_BROKEN.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use makeroom_core::Address;
    use makeroom_pool::Watcher as _;

    use super::*;

    #[test]
    fn a_bug_in_a_free_does_not_send_the_pools_memory_to_the_driver() {
        watch::Watch::new(0, false).reserved(Address(0x7e00_0000_0000), 1 << 30);
        assert_eq!(taking_back(0x7e00_0000_1000, || panic!("a bug")), Some(SUCCESS));
        assert_eq!(taking_back(0x1000, || panic!("a bug")), None, "the driver's own memory");
        assert_eq!(taking_back(0x7e00_0000_1000, || Some(1)), Some(1));
        assert!(is_broken());
    }
}
