//! Pools by number. A pool destroyed during another thread's call is freed when that call returns.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use makeroom_pool::PoolError;

use crate::abi::{self, PoolHandle};
use crate::entry::Entry;
use crate::failure::{Failure, Result};
use crate::table::{InUse, MOST, Table};

static POOLS: Table<Entry> = Table::new();

static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Fails in a forked child. Checked before any lock, which another thread of the parent may have held.
pub(crate) fn in_parent() -> Result<()> {
    if IS_FORKED.load(Ordering::Relaxed) { Err(PoolError::Forked.into()) } else { Ok(()) }
}

/// Detects forks. CUDA does not work in a forked child, so a child of a process that had a pool cannot have one.
pub(crate) fn watch_forks() {
    extern "C" fn forked() {
        IS_FORKED.store(true, Ordering::Relaxed);
    }
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler only stores into a static atomic, which is async-signal-safe in a forked child.
        // Registration fails only without memory; then forks go unnoticed.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}

/// Assigns a number to a pool.
pub(crate) fn insert(pool: Entry) -> Result<PoolHandle> {
    POOLS.insert(pool).map_err(|_| Failure::argument(format!("there are already {MOST} pools")))
}

/// The pool with a number.
#[inline]
pub(crate) fn get(handle: PoolHandle) -> Result<InUse<Entry>> {
    in_parent()?;
    POOLS.get(handle).ok_or_else(|| unknown(handle))
}

/// Removes a pool from the table, and frees it once no thread uses it.
pub(crate) fn remove(handle: PoolHandle) -> Result<()> {
    in_parent()?;
    if POOLS.remove(handle) { Ok(()) } else { Err(unknown(handle)) }
}

#[cold]
fn unknown(handle: PoolHandle) -> Failure {
    let text = format!("{handle:#x} is not a pool, or the pool was destroyed");
    Failure::new(abi::NO_SUCH_POOL, text)
}
