//! A table of values by number, protected by hazard pointers (`hazard`): lookups write only to the thread's own cell,
//! and a value is freed after its last use.
//!
//! A number is a slot in the table and a generation count, so the number of a removed value is never that of a later
//! one in its slot.
//!
//! A thread must not remove a value that it is using: it would wait for itself.

use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::barrier;
use crate::hazard::{Cell, Cells, pause_shortly};

/// Maximum number of values.
pub(crate) const MOST: usize = 1024;
/// Number of threads with a cell of their own.
const CELLS: usize = 256;
/// Polls before a remover sleeps in between, and the length of a sleep.
const EAGER: u32 = 1000;
const NAP: Duration = Duration::from_micros(50);

static ANNOUNCEMENTS: Cells<CELLS> = Cells::new();

/// A thread's cell, which becomes available to others when the thread exits.
struct Own(std::cell::Cell<Option<&'static Cell>>);

thread_local! {
    static OWN: Own = const { Own(std::cell::Cell::new(None)) };
}

impl Own {
    #[inline]
    fn cell(&self) -> Option<&'static Cell> {
        if self.0.get().is_none() {
            self.0.set(ANNOUNCEMENTS.take_first());
        }
        self.0.get()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(cell) = self.0.get() {
            cell.give_back();
        }
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
    /// Generation count, under the lock that protects changes of slots.
    made: Mutex<u32>,
}

/// A value in use by the calling thread.
pub(crate) struct InUse<T: 'static> {
    /// Announced: it is not freed while this exists.
    numbered: *const Numbered<T>,
    cell: &'static Cell,
    /// Whether the cell is not the thread's own, and is returned after the use.
    is_borrowed: bool,
}

impl<T> Deref for InUse<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: removers wait until this is dropped before they free the value.
        unsafe { &(*self.numbered).value }
    }
}

impl<T> Drop for InUse<T> {
    #[inline]
    fn drop(&mut self) {
        self.cell.release();
        if self.is_borrowed {
            self.cell.give_back();
        }
    }
}

impl<T: Send + Sync> Table<T> {
    pub(crate) const fn new() -> Self {
        Self { places: [const { AtomicPtr::new(null_mut()) }; MOST], made: Mutex::new(0) }
    }

    /// Inserts a value and returns its number; returns the value if the table is full.
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

    /// The value with a number.
    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<InUse<T>> {
        let place = self.place_of(number)?;
        let own = OWN.try_with(Own::cell).ok().flatten().filter(|cell| cell.is_unused());
        // Nested uses, exiting threads, and threads beyond the first `CELLS` borrow a cell.
        let cell = own.unwrap_or_else(|| ANNOUNCEMENTS.take());
        // Dropping it withdraws the announcement.
        let found = InUse { numbered: cell.protect(place), cell, is_borrowed: own.is_none() };
        if found.numbered.is_null() {
            return None;
        }
        // SAFETY: it is announced, so it has not been freed.
        (unsafe { (*found.numbered).number } == number).then_some(found)
    }

    /// Removes a value and waits until no thread uses it. Returns whether the number was valid.
    pub(crate) fn remove(&self, number: u64) -> bool {
        let changing = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = self.place_of(number) else { return false };
        let numbered = place.load(Ordering::Relaxed);
        // SAFETY: only a remover frees it, and removers need the lock that is held here.
        if numbered.is_null() || unsafe { (*numbered).number } != number {
            return false;
        }
        place.store(null_mut(), Ordering::SeqCst);
        drop(changing);
        let pause = |looked| if looked < EAGER { pause_shortly(looked) } else { std::thread::sleep(NAP) };
        if !ANNOUNCEMENTS.wait_for_users(numbered.cast(), pause) {
            // Users may be invisible, so leak the value. It can no longer be found.
            return true;
        }
        // SAFETY: created by `insert`, out of the table, and not in use.
        drop(unsafe { Box::from_raw(numbered) });
        true
    }

    fn place_of(&self, number: u64) -> Option<&AtomicPtr<Numbered<T>>> {
        self.places.get(((number & u64::from(u32::MAX)) as usize).checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::time::Instant;

    use super::*;

    const MOST_MADE: usize = 1 << 20;
    static HAS_ENDED: [AtomicBool; MOST_MADE] = [const { AtomicBool::new(false) }; MOST_MADE];
    static ENDED: AtomicUsize = AtomicUsize::new(0);

    /// Records that it was dropped, where that can be checked later.
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
        // Nested uses, as in a thread without a cell.
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

    /// A thread nests uses of values while another removes one of them. With a lock that prefers writers, the second
    /// use would wait for the remover, which waits for the first.
    #[test]
    fn uses_inside_each_other_do_not_wait_for_a_remover() {
        static TABLE: Table<u32> = Table::new();
        let (kept, removed) = (TABLE.insert(1).unwrap(), TABLE.insert(2).unwrap());
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let uses = [TABLE.get(removed).unwrap(), TABLE.get(removed).unwrap(), TABLE.get(kept).unwrap()];
            scope.spawn(move || assert!(TABLE.remove(removed)));
            while TABLE.get(removed).is_some() {
                std::thread::yield_now();
            }
            // By now the remover is waiting, and does not block this thread.
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(TABLE.get(kept).as_deref(), Some(&1));
            assert_eq!(uses.iter().map(|value| **value).sum::<u32>(), 5);
            drop(uses);
        });
        assert!(begin.elapsed() < Duration::from_secs(20) && TABLE.remove(kept));
    }

    /// Threads with and without a cell use values that are removed and inserted again under them.
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
                    // Let others run.
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
