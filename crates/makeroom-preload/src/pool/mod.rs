//! `run --pool`: the program's calls for device memory are answered by makeroom's own pool.
//!
//! ```text
//! calls.rs     cuMemAlloc, cuMemAllocAsync and their frees      devices.rs   one pool per device, made at first use
//! pools.rs     the driver's pools, as the program sees them     watch.rs     the pool's own memory: limit and recording
//! peers.rs     other devices that use the memory                holds.rs     who holds the primary contexts
//! foreign.rs   frees on streams of other contexts               callers.rs   who needs memory of the driver's own
//! range.rs     the allocation around an address                 sharing.rs   PyTorch's tensors in other processes
//! ```
//!
//! Each call here answers with a result, or with `None`: then the driver is asked as if there were no pool. That is
//! so for everything the pool cannot do as the driver does it: calls in a capture, contexts other than the device's
//! primary one, default streams of single threads, pools whose memory is to be shared, callers that share theirs. What
//! the pool handed out it also takes back, whatever happens meanwhile: an address of its ranges never reaches the
//! driver's frees.

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

pub(crate) use calls::{allocate, allocate_everywhere, free, free_on, retire_stream};
pub(crate) use devices::{abandon, cached, exported, gives_back};
pub(crate) use holds::{released, retained};
pub(crate) use peers::{enabled as peer_enabled, opened as pool_opened};
pub(crate) use pools::{allocate_from, attribute, created, destroyed, set_attribute, trim};
pub(crate) use range::{address_range, range_attribute, range_attributes};
pub(crate) use sharing::exports;
pub(crate) use watch::holds;

use crate::config::config;
use crate::driver::types::{CuResult, SUCCESS};
use crate::notices::{Notice, raise_loudly};
use crate::{cost, errno, state};

/// After a bug: nothing new is served, and what comes back is kept.
static IS_BROKEN: AtomicBool = AtomicBool::new(false);

/// In a child of a fork: the driver does not follow there, and another thread may have held any lock.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether the program's memory comes from the pool.
#[inline]
pub(crate) fn is_on() -> bool {
    config().pool && !config().is_off && !IS_CHILD.load(Ordering::Relaxed)
}

/// This process has just been forked. One whose parent had not used CUDA may use it itself.
pub(crate) fn forked() {
    if state::has_started() {
        IS_CHILD.store(true, Ordering::Relaxed);
    }
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
    cost::of_pool(|| unless_broken(call).flatten())
}

/// What a call answers; after a bug nothing new is served any more.
fn unless_broken<T>(call: impl FnOnce() -> T) -> Option<T> {
    let answer = catch_unwind(AssertUnwindSafe(call)).ok();
    if answer.is_none() {
        IS_BROKEN.store(true, Ordering::Relaxed);
        raise_loudly(Notice::PoolFailed);
    }
    answer
}

/// Takes memory back. What the pool handed out never reaches the driver's frees: where a bug keeps it from being taken
/// back in order it is kept, and the program is told that all is well.
fn taking_back(address: u64, call: impl FnOnce() -> Option<CuResult>) -> Option<CuResult> {
    unless_broken(call).unwrap_or_else(|| holds(address).then_some(SUCCESS))
}

/// Whether a bug has put the pool out of use.
fn is_broken() -> bool {
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
