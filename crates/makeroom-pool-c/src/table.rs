//! Values by number, found without writing to anything that threads share, and ended with their last use.
//!
//! A number is a place in the table and how many values there were before, so the number of a value that was removed is not
//! that of a later one.
//!
//! A thread announces the value that it is about to use in a cell of its own, and looks once more whether it is still in the
//! table. Whoever removes a value takes it out of the table and then waits until nobody announces it. One of the two has to
//! see the other, for which there must be a barrier between the announcement and the second look: it would cost as much as an
//! allocation, so whoever removes has the kernel put it into all running threads (`membarrier`). Where the kernel does not, the
//! processor's own is used. Threads beyond [`CELLS`] share a lock, which the remover takes as well.
//!
//! A value must not be removed by the thread that uses it.

use std::cell::Cell;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, compiler_fence, fence};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// So many values there can be at once.
pub(crate) const MOST: usize = 1024;
/// So many threads announce on their own.
const CELLS: usize = 256;
/// How often a remover looks before it sleeps in between, and for how long it sleeps.
const EAGER: u32 = 1000;
const NAP: Duration = Duration::from_micros(50);

/// Where a thread announces what it uses, on cache lines of its own.
#[repr(align(128))]
struct Announcement {
    used: AtomicPtr<()>,
    is_taken: AtomicBool,
}

static ANNOUNCEMENTS: [Announcement; CELLS] =
    [const { Announcement { used: AtomicPtr::new(null_mut()), is_taken: AtomicBool::new(false) } }; CELLS];
/// Held by threads that have no cell, while they use a value.
static CROWD: RwLock<()> = RwLock::new(());
/// Whether the kernel puts barriers into threads. Known before the first value is in a table.
static HAS_BARRIERS: AtomicBool = AtomicBool::new(false);

/// The cell of a thread, which is another's once the thread has ended.
struct Own(Cell<Option<&'static Announcement>>);

thread_local! {
    static OWN: Own = const { Own(Cell::new(None)) };
}

impl Own {
    fn cell(&self) -> Option<&'static Announcement> {
        if self.0.get().is_none() {
            let take = |cell: &&Announcement| !cell.is_taken.swap(true, Ordering::Acquire);
            self.0.set(ANNOUNCEMENTS.iter().find(take));
        }
        self.0.get()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(cell) = self.0.get() {
            cell.is_taken.store(false, Ordering::Release);
        }
    }
}

mod barrier {
    use super::{AtomicBool, HAS_BARRIERS, Ordering, compiler_fence, fence};

    const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
    const PRIVATE_EXPEDITED: i32 = 1 << 3;

    fn membarrier(command: i32) -> bool {
        // SAFETY: it takes numbers only and touches no memory.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    /// Asks the kernel for its help, once.
    pub(super) fn prepare() {
        static IS_ASKED: AtomicBool = AtomicBool::new(false);
        if !IS_ASKED.swap(true, Ordering::Relaxed) {
            let helps = membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
            HAS_BARRIERS.store(helps, Ordering::Relaxed);
        }
    }

    /// Between an announcement and the look that follows.
    #[inline]
    pub(super) fn of_user() {
        if HAS_BARRIERS.load(Ordering::Relaxed) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// Between a removal and the look for announcements. Whether it stands in all threads.
    pub(super) fn of_remover() -> bool {
        fence(Ordering::SeqCst);
        !HAS_BARRIERS.load(Ordering::Relaxed) || membarrier(PRIVATE_EXPEDITED)
    }
}

/// A value and its number.
struct Numbered<T> {
    number: u64,
    value: T,
}

/// Values by number.
pub(crate) struct Table<T: 'static> {
    places: [AtomicPtr<Numbered<T>>; MOST],
    /// How many values there were; held while a place changes.
    made: Mutex<u32>,
}

/// A value that the calling thread uses.
pub(crate) struct InUse<T: 'static> {
    /// Announced, or in a table whose removers wait for the lock: it does not end before this does.
    numbered: *const Numbered<T>,
    by: By,
}

enum By {
    Cell(&'static Announcement),
    Lock { _held: RwLockReadGuard<'static, ()> },
}

impl<T> Deref for InUse<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: removers wait for this to be dropped before they free it.
        unsafe { &(*self.numbered).value }
    }
}

impl<T> Drop for InUse<T> {
    #[inline]
    fn drop(&mut self) {
        if let By::Cell(cell) = self.by {
            cell.used.store(null_mut(), Ordering::Release);
        }
    }
}

impl<T: Send + Sync> Table<T> {
    pub(crate) const fn new() -> Self {
        Self { places: [const { AtomicPtr::new(null_mut()) }; MOST], made: Mutex::new(0) }
    }

    /// Gives a value a number; the value comes back where the table is full.
    pub(crate) fn insert(&self, value: T) -> Result<u64, T> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        barrier::prepare();
        let is_free = |place: &AtomicPtr<Numbered<T>>| place.load(Ordering::Relaxed).is_null();
        let Some(index) = self.places.iter().position(is_free) else { return Err(value) };
        *made = made.wrapping_add(1);
        let number = u64::from(*made) << 32 | (index as u64 + 1);
        let numbered = Box::into_raw(Box::new(Numbered { number, value }));
        self.places[index].store(numbered, Ordering::Release);
        Ok(number)
    }

    /// The value of a number.
    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<InUse<T>> {
        let place = self.place_of(number)?;
        let cell = OWN.try_with(Own::cell).ok().flatten();
        let found = match cell.filter(|cell| cell.used.load(Ordering::Relaxed).is_null()) {
            Some(cell) => announce(place, cell)?,
            None => join_crowd(place)?,
        };
        // SAFETY: it is in use, so it has not ended.
        (unsafe { (*found.numbered).number } == number).then_some(found)
    }

    /// Takes a value out of the table and waits until nobody uses it; whether there was one of that number.
    pub(crate) fn remove(&self, number: u64) -> bool {
        let changing = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = self.place_of(number) else { return false };
        let numbered = place.load(Ordering::Relaxed);
        // SAFETY: only a remover ends it, and those wait for the lock that is held here.
        if numbered.is_null() || unsafe { (*numbered).number } != number {
            return false;
        }
        place.store(null_mut(), Ordering::SeqCst);
        drop(changing);
        if !barrier::of_remover() {
            // Somebody may use it unseen: it stays, though nobody finds it any more.
            return true;
        }
        drop(CROWD.write().unwrap_or_else(PoisonError::into_inner));
        for cell in &ANNOUNCEMENTS {
            let mut looked = 0;
            while cell.used.load(Ordering::Acquire) == numbered.cast() {
                looked += 1;
                if looked < EAGER { std::thread::yield_now() } else { std::thread::sleep(NAP) }
            }
        }
        // SAFETY: made by `insert`, out of the table, and nobody uses it.
        drop(unsafe { Box::from_raw(numbered) });
        true
    }

    fn place_of(&self, number: u64) -> Option<&AtomicPtr<Numbered<T>>> {
        self.places.get(((number & u64::from(u32::MAX)) as usize).checked_sub(1)?)
    }
}

#[inline]
fn announce<T>(place: &AtomicPtr<Numbered<T>>, cell: &'static Announcement) -> Option<InUse<T>> {
    let mut numbered = place.load(Ordering::Acquire);
    loop {
        if numbered.is_null() {
            return None;
        }
        // Dropping it takes the announcement back.
        let found = InUse { numbered, by: By::Cell(cell) };
        cell.used.store(numbered.cast(), Ordering::Relaxed);
        barrier::of_user();
        let now = place.load(Ordering::Acquire);
        if now == numbered {
            return Some(found);
        }
        numbered = now;
    }
}

/// For threads without a cell, and in the middle of another use.
#[cold]
fn join_crowd<T>(place: &AtomicPtr<Numbered<T>>) -> Option<InUse<T>> {
    let held = CROWD.read().unwrap_or_else(PoisonError::into_inner);
    let numbered = place.load(Ordering::SeqCst);
    (!numbered.is_null()).then_some(InUse { numbered, by: By::Lock { _held: held } })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::time::Instant;

    use super::*;

    const MOST_MADE: usize = 1 << 20;
    static HAS_ENDED: [AtomicBool; MOST_MADE] = [const { AtomicBool::new(false) }; MOST_MADE];
    static ENDED: AtomicUsize = AtomicUsize::new(0);

    /// Leaves word of its end where that can be read later.
    struct Canary(usize);

    impl Drop for Canary {
        fn drop(&mut self) {
            HAS_ENDED[self.0].store(true, Ordering::Relaxed);
            ENDED.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn numbers_are_of_one_value_only() {
        let table = Table::<u32>::new();
        assert!(table.get(0).is_none() && table.get(1).is_none() && table.get(u64::MAX).is_none());
        let first = table.insert(7).unwrap();
        assert_eq!(table.get(first).as_deref(), Some(&7));
        assert!(table.remove(first) && !table.remove(first));
        let second = table.insert(8).unwrap();
        assert_ne!(first, second);
        assert!(table.get(first).is_none());
        assert_eq!(table.get(second).as_deref(), Some(&8));
        // One use inside another, as in a thread without a cell.
        let outer = table.get(second).unwrap();
        assert_eq!(table.get(second).as_deref(), Some(&8));
        drop(outer);
        assert!(table.remove(second));
    }

    #[test]
    fn a_full_table_hands_the_value_back() {
        let table = Table::<usize>::new();
        let numbers: Vec<u64> = (0..MOST).map(|value| table.insert(value).unwrap()).collect();
        assert_eq!(table.insert(99), Err(99));
        assert!(table.remove(numbers[500]));
        let last = table.insert(99).unwrap();
        assert_eq!(table.get(last).as_deref(), Some(&99));
        for number in numbers.into_iter().filter(|&number| number != last) {
            table.remove(number);
        }
        table.remove(last);
    }

    /// Threads with a cell and without one use values that are removed under their hands and made anew.
    #[test]
    fn nothing_ends_while_it_is_used() {
        static TABLE: Table<Canary> = Table::new();
        const WITH: usize = 4;
        const WITHOUT: usize = 4;
        let newest = [const { AtomicPtr::<()>::new(null_mut()) }; 2];
        let is_over = AtomicBool::new(false);
        let (have_cells, start) = (Barrier::new(CELLS + 1), Barrier::new(WITH + WITHOUT + 1));
        let use_them = |thread: usize| {
            start.wait();
            while !is_over.load(Ordering::Relaxed) {
                let number = newest[thread % 2].load(Ordering::Relaxed) as u64;
                if let Some(canary) = TABLE.get(number) {
                    let index = canary.0;
                    // Others run meanwhile.
                    std::thread::yield_now();
                    assert!(!HAS_ENDED[index].load(Ordering::Relaxed), "used after its end");
                }
            }
        };
        let made = std::thread::scope(|scope| {
            for thread in 0..CELLS {
                let (have_cells, use_them, is_over) = (&have_cells, &use_them, &is_over);
                scope.spawn(move || {
                    OWN.with(Own::cell);
                    have_cells.wait();
                    if thread < WITH {
                        return use_them(thread);
                    }
                    while !is_over.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                });
            }
            have_cells.wait();
            for thread in 0..WITHOUT {
                let use_them = &use_them;
                scope.spawn(move || {
                    use_them(thread);
                });
            }
            start.wait();
            let begin = Instant::now();
            let mut made = 0;
            while begin.elapsed() < Duration::from_millis(500) && made < MOST_MADE {
                let place = &newest[made % 2];
                let number = TABLE.insert(Canary(made)).ok().unwrap();
                let before = place.swap(number as *mut (), Ordering::Relaxed) as u64;
                assert_eq!(TABLE.remove(before), before != 0);
                made += 1;
            }
            is_over.store(true, Ordering::Relaxed);
            made
        });
        for place in &newest {
            assert!(TABLE.remove(place.load(Ordering::Relaxed) as u64));
        }
        assert_eq!(ENDED.load(Ordering::Relaxed), made, "everything ends once");
    }
}
