//! Pools by number.
//!
//! A number is a place in a table and how often the place was used before, so the number of a destroyed pool is not
//! that of a later one. Whoever uses a pool holds it, so one thread may destroy a pool under another's call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, PoisonError, RwLock};

use makeroom_pool::PoolError;

use crate::abi::{self, PoolHandle};
use crate::entry::Entry;
use crate::failure::{Failure, Result};

/// A place in the table.
#[derive(Debug, Default)]
struct Place {
    used_before: u32,
    pool: Option<Arc<Entry>>,
}

static PLACES: RwLock<Vec<Place>> = RwLock::new(Vec::new());

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
pub(crate) fn insert(pool: Entry) -> PoolHandle {
    let mut places = PLACES.write().unwrap_or_else(PoisonError::into_inner);
    let index = places.iter().position(|place| place.pool.is_none()).unwrap_or(places.len());
    if index == places.len() {
        places.push(Place::default());
    }
    let place = &mut places[index];
    place.pool = Some(Arc::new(pool));
    u64::from(place.used_before) << 32 | (index as u64 + 1)
}

/// The pool of a number.
#[inline]
pub(crate) fn get(handle: PoolHandle) -> Result<Arc<Entry>> {
    in_parent()?;
    let places = PLACES.read().unwrap_or_else(PoisonError::into_inner);
    let place = index_of(handle).and_then(|index| places.get(index));
    let place = place.filter(|place| u64::from(place.used_before) == handle >> 32);
    place.and_then(|place| place.pool.clone()).ok_or_else(|| unknown(handle))
}

/// Takes a pool out of the table.
pub(crate) fn remove(handle: PoolHandle) -> Result<Arc<Entry>> {
    in_parent()?;
    let mut places = PLACES.write().unwrap_or_else(PoisonError::into_inner);
    let place = index_of(handle).and_then(|index| places.get_mut(index));
    let place = place.filter(|place| u64::from(place.used_before) == handle >> 32);
    let place = place.ok_or_else(|| unknown(handle))?;
    let pool = place.pool.take().ok_or_else(|| unknown(handle))?;
    place.used_before = place.used_before.wrapping_add(1);
    Ok(pool)
}

fn index_of(handle: PoolHandle) -> Option<usize> {
    ((handle & u64::from(u32::MAX)) as usize).checked_sub(1)
}

#[cold]
fn unknown(handle: PoolHandle) -> Failure {
    let text = format!("{handle:#x} is no pool's number, or the pool was destroyed");
    Failure::new(abi::NO_SUCH_POOL, text)
}
