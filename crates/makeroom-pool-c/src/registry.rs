//! Pools by number. One thread may destroy a pool under another's call: it ends when that is over.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use makeroom_pool::PoolError;

use crate::abi::{self, PoolHandle};
use crate::entry::Entry;
use crate::failure::{Failure, Result};
use crate::table::{InUse, MOST, Table};

static POOLS: Table<Entry> = Table::new();

static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// An error in a forked child. Asked before any lock: another thread of the parent may have held it.
pub(crate) fn in_parent() -> Result<()> {
    if IS_FORKED.load(Ordering::Relaxed) { Err(PoolError::Forked.into()) } else { Ok(()) }
}

/// Lets forked children know that they are. The driver does not follow a fork, so a child of a process that had a pool
/// cannot have one.
pub(crate) fn watch_forks() {
    extern "C" fn forked() {
        IS_FORKED.store(true, Ordering::Relaxed);
    }
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the function only stores into a static, which may be done in a forked child of many threads.
        // It fails only without memory; then children are not told apart, as without it.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}

/// Gives a pool a number.
pub(crate) fn insert(pool: Entry) -> Result<PoolHandle> {
    POOLS.insert(pool).map_err(|_| Failure::argument(format!("there are {MOST} pools already")))
}

/// The pool of a number.
#[inline]
pub(crate) fn get(handle: PoolHandle) -> Result<InUse<Entry>> {
    in_parent()?;
    POOLS.get(handle).ok_or_else(|| unknown(handle))
}

/// Takes a pool out of the table, and ends it once nobody uses it.
pub(crate) fn remove(handle: PoolHandle) -> Result<()> {
    in_parent()?;
    if POOLS.remove(handle) { Ok(()) } else { Err(unknown(handle)) }
}

#[cold]
fn unknown(handle: PoolHandle) -> Failure {
    let text = format!("{handle:#x} is no pool's number, or the pool was destroyed");
    Failure::new(abi::NO_SUCH_POOL, text)
}
