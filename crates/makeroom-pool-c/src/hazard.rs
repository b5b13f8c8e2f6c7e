//! Hazard pointers (Michael, 2004), with `membarrier`.
//!
//! A thread announces the value that it is about to use in a cell (its hazard pointer), and rereads whether the value
//! is still where it was found. A remover takes a value out and then waits until no cell announces it. A barrier
//! separates the two steps on each side (`barrier`).
//!
//! A thread has one cell of its own, for one use at a time. Nested uses, and threads beyond the first `N`, borrow
//! one: from the same array, or from a list that only grows. So a use never waits, and a remover waits only for the
//! uses of its own value.

use std::ptr::null_mut;

use crate::barrier;
use crate::sync::{AtomicBool, AtomicPtr, Ordering, yield_now};

/// Where a thread announces the value it uses, on its own cache lines.
#[repr(align(128))]
pub(crate) struct Cell {
    used: AtomicPtr<()>,
    is_taken: AtomicBool,
    /// The next cell of the list.
    next: AtomicPtr<Self>,
}

macro_rules! new_cell {
    () => {
        Cell {
            used: AtomicPtr::new(null_mut()),
            is_taken: AtomicBool::new(false),
            next: AtomicPtr::new(null_mut()),
        }
    };
}

/// All cells. Those in the list are never freed.
pub(crate) struct Cells<const N: usize> {
    first: [Cell; N],
    more: AtomicPtr<Cell>,
}

impl<const N: usize> Cells<N> {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { first: [const { new_cell!() }; N], more: AtomicPtr::new(null_mut()) }
    }

    /// Loom's atomics have no const constructor.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { first: std::array::from_fn(|_| new_cell!()), more: AtomicPtr::new(null_mut()) }
    }

    /// Takes an unused cell. If all are taken, the list gets a new one.
    pub(crate) fn take(&self) -> &Cell {
        self.iter().find(|cell| cell.take()).unwrap_or_else(|| self.add())
    }

    /// Takes one of the first cells, for a thread to keep.
    pub(crate) fn take_first(&self) -> Option<&Cell> {
        self.first.iter().find(|cell| cell.take())
    }

    #[cold]
    fn add(&self) -> &Cell {
        let cell = Box::into_raw(Box::new(new_cell!()));
        // SAFETY: it was just created, and is never freed.
        let new = unsafe { &*cell };
        new.is_taken.store(true, Ordering::Relaxed);
        let mut head = self.more.load(Ordering::Acquire);
        loop {
            new.next.store(head, Ordering::Relaxed);
            match self.more.compare_exchange(head, cell, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return new,
                Err(others) => head = others,
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Cell> {
        let follow = |place: &AtomicPtr<Cell>| {
            // SAFETY: cells in the list are never freed, and are fully initialized when published.
            unsafe { place.load(Ordering::Acquire).as_ref() }
        };
        self.first.iter().chain(std::iter::successors(follow(&self.more), move |cell| follow(&cell.next)))
    }

    /// Waits until no cell announces a value that was removed. `false` if the barrier failed and users may be
    /// invisible.
    pub(crate) fn wait_for_users(&self, value: *const (), mut pause: impl FnMut(u32)) -> bool {
        if !barrier::of_remover() {
            return false;
        }
        for cell in self.iter() {
            let mut looked = 0;
            while std::ptr::eq(cell.used.load(Ordering::Acquire), value) {
                looked += 1;
                pause(looked);
            }
        }
        true
    }
}

impl Cell {
    fn take(&self) -> bool {
        !self.is_taken.swap(true, Ordering::Acquire)
    }

    /// Makes it available to other threads.
    pub(crate) fn give_back(&self) {
        self.is_taken.store(false, Ordering::Release);
    }

    /// Whether it announces nothing. Only for the thread that has it.
    #[inline]
    pub(crate) fn is_unused(&self) -> bool {
        self.used.load(Ordering::Relaxed).is_null()
    }

    /// Announces and returns the value at `place`, which stays valid until [`Self::release`]. Null if there is none.
    #[inline]
    pub(crate) fn protect<T>(&self, place: &AtomicPtr<T>) -> *mut T {
        let mut value = place.load(Ordering::Acquire);
        while !value.is_null() {
            self.used.store(value.cast(), Ordering::Relaxed);
            barrier::of_user();
            let now = place.load(Ordering::Acquire);
            if std::ptr::eq(now, value) {
                return value;
            }
            value = now;
        }
        self.release();
        value
    }

    /// Withdraws the announcement.
    #[inline]
    pub(crate) fn release(&self) {
        self.used.store(null_mut(), Ordering::Release);
    }
}

/// Yields to other threads.
pub(crate) fn pause_shortly(_looked: u32) {
    yield_now();
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn cells_are_used_again_and_there_are_always_more() {
        let cells = Cells::<2>::new();
        let taken: Vec<&Cell> = (0..5).map(|_| cells.take()).collect();
        assert!(cells.take_first().is_none());
        assert_eq!(cells.iter().count(), 5);
        for cell in taken {
            cell.give_back();
        }
        let again: Vec<&Cell> = (0..5).map(|_| cells.take()).collect();
        assert_eq!(cells.iter().count(), 5);
        for cell in again {
            cell.give_back();
        }
        // Free the cells that a static would keep.
        let mut next = cells.more.load(Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: created by `add`, and no longer used.
            let cell = unsafe { Box::from_raw(next) };
            next = cell.next.load(Ordering::Acquire);
        }
    }
}
