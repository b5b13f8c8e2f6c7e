//! Pools by number.
//!
//! A number is a place in a table and how many pools there were before, so the number of a destroyed pool is not that
//! of a later one. Whoever uses a pool holds it, so one thread may destroy a pool under another's call. Looking a pool up
//! writes to nothing that threads share: it is done for every allocation.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use arc_swap::{ArcSwapOption, Guard};
use makeroom_pool::PoolError;

use crate::abi::{self, PoolHandle};
use crate::entry::Entry;
use crate::failure::{Failure, Result};

/// So many pools there can be at once.
const MOST: usize = 1024;

/// A pool and its number.
#[derive(Debug)]
struct Numbered {
    number: PoolHandle,
    pool: Entry,
}

static PLACES: [ArcSwapOption<Numbered>; MOST] = [const { ArcSwapOption::const_empty() }; MOST];
/// How many pools were made; held while a place changes.
static MADE: Mutex<u32> = Mutex::new(0);

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

/// A pool that somebody uses.
pub(crate) struct InUse {
    /// Never `None`: whoever made this has looked.
    place: Guard<Option<Arc<Numbered>>>,
}

impl Deref for InUse {
    type Target = Entry;

    #[inline]
    fn deref(&self) -> &Entry {
        match &*self.place {
            Some(numbered) => &numbered.pool,
            None => unreachable!("`get` found a pool here"),
        }
    }
}

/// Gives a pool a number.
pub(crate) fn insert(pool: Entry) -> Result<PoolHandle> {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let is_free = |place: &ArcSwapOption<Numbered>| place.load().is_none();
    let index = PLACES
        .iter()
        .position(is_free)
        .ok_or_else(|| Failure::argument(format!("there are {MOST} pools already")))?;
    *made = made.wrapping_add(1);
    let number = u64::from(*made) << 32 | (index as u64 + 1);
    PLACES[index].store(Some(Arc::new(Numbered { number, pool })));
    Ok(number)
}

/// The pool of a number.
#[inline]
pub(crate) fn get(handle: PoolHandle) -> Result<InUse> {
    in_parent()?;
    let place = place_of(handle).map(ArcSwapOption::load);
    let place = place.filter(|place| is_of(place.as_ref(), handle));
    place.map(|place| InUse { place }).ok_or_else(|| unknown(handle))
}

/// Takes a pool out of the table. It ends with its last use.
pub(crate) fn remove(handle: PoolHandle) -> Result<()> {
    in_parent()?;
    let changing = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = place_of(handle).filter(|place| is_of(place.load().as_ref(), handle));
    let removed = place.and_then(|place| place.swap(None));
    drop(changing);
    removed.map(drop).ok_or_else(|| unknown(handle))
}

fn place_of(handle: PoolHandle) -> Option<&'static ArcSwapOption<Numbered>> {
    PLACES.get(((handle & u64::from(u32::MAX)) as usize).checked_sub(1)?)
}

#[inline]
fn is_of(place: Option<&Arc<Numbered>>, handle: PoolHandle) -> bool {
    place.is_some_and(|numbered| numbered.number == handle)
}

#[cold]
fn unknown(handle: PoolHandle) -> Failure {
    let text = format!("{handle:#x} is no pool's number, or the pool was destroyed");
    Failure::new(abi::NO_SUCH_POOL, text)
}
