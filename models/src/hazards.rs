//! Hazard pointers: nothing is freed while it is used.

use std::sync::atomic::{AtomicBool as Plain, Ordering as PlainOrdering};

use crate::hazard::{Cells, pause_shortly};
use crate::run::{Arc, model, spawn};
use crate::sync::{AtomicPtr, Ordering};

/// A value that knows whether it was freed. It stays in memory, so that its use after that is seen and not undefined; the
/// flag is no part of the model.
struct Value {
    is_freed: Plain,
}

struct World<const N: usize> {
    cells: Cells<N>,
    place: AtomicPtr<Value>,
    value: *mut Value,
}

// SAFETY: the value is shared and its flag is atomic.
unsafe impl<const N: usize> Send for World<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for World<N> {}

impl<const N: usize> World<N> {
    fn new() -> Arc<Self> {
        let value = Box::into_raw(Box::new(Value { is_freed: Plain::new(false) }));
        Arc::new(Self { cells: Cells::new(), place: AtomicPtr::new(value), value })
    }

    /// As `Table::get` and the end of its use, `depth` uses inside each other.
    fn use_it(&self, depth: u32) {
        let cell = self.cells.take();
        let value = cell.protect(&self.place);
        if !value.is_null() {
            if depth > 1 {
                self.use_it(depth - 1);
            }
            // SAFETY: values stay in memory.
            assert!(!unsafe { &*value }.is_freed.load(PlainOrdering::Relaxed), "used after its end");
        }
        cell.release();
        cell.give_back();
    }

    /// As `Table::remove`.
    fn remove(&self) {
        self.place.store(std::ptr::null_mut(), Ordering::SeqCst);
        assert!(self.cells.wait_for_users(self.value.cast(), pause_shortly));
        // SAFETY: as above.
        unsafe { &*self.value }.is_freed.store(true, PlainOrdering::Relaxed);
    }
}

impl<const N: usize> Drop for World<N> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and all threads have ended.
        drop(unsafe { Box::from_raw(self.value) });
    }
}

fn check<const N: usize>(users: usize, depth: u32) {
    model(move || {
        let world = World::<N>::new();
        let users: Vec<_> = (0..users)
            .map(|_| {
                let world = Arc::clone(&world);
                spawn(move || world.use_it(depth))
            })
            .collect();
        world.remove();
        users.into_iter().for_each(|user| user.join().unwrap());
    });
}

#[test]
fn nothing_is_freed_while_a_thread_uses_it() {
    check::<1>(1, 1);
}

#[test]
fn nothing_is_freed_while_two_threads_use_it() {
    check::<2>(2, 1);
}

/// One of them gets a new cell, which the remover has to find.
#[test]
fn cells_of_the_list_are_seen_too() {
    check::<1>(2, 1);
}

#[test]
fn a_use_inside_another_is_seen_too() {
    check::<1>(1, 2);
}
