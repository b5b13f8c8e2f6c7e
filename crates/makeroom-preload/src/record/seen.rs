//! Per-thread cache of the Python frames that recent walks visited. From one allocation to the next most frames of a stack
//! stay the same: a frame at the same address, with the same code and instruction, is not looked up again. Only the
//! address of its code object's line table is compared, so that a reused address is noticed.
//!
//! The program's own work evicts all of this from the CPU caches, and frames form a linked list, so each miss waits
//! for the one before it. The last walk's frames are therefore prefetched all at once before a walk begins.

use std::cell::Cell;

pub(crate) use makeroom_pool::prefetch;

/// Cached frames per thread: several per stack position, because the thread calls different functions in turn.
const PLACES: usize = 512;
/// Frames of the last walk that are prefetched; outer ones are not.
const LAST: usize = 32;

/// A visited frame, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Seen {
    /// Its address.
    pub(crate) frame: usize,
    /// Its code object, as stored in the frame.
    pub(crate) code: usize,
    /// Its instruction, as stored in the frame.
    pub(crate) instruction: usize,
    /// Address of the code's line table.
    pub(crate) lines: usize,
    /// The function and instruction, as in a stack.
    pub(crate) word: u64,
}

impl Seen {
    const NOTHING: Self = Self { frame: 0, code: 0, instruction: 0, lines: 0, word: 0 };
}

/// A frame of the last walk.
#[derive(Clone, Copy, Debug)]
struct Last {
    frame: usize,
    object: usize,
    place: usize,
}

/// One thread's cache. All zeros are an empty one.
#[derive(Debug)]
pub(crate) struct Frames {
    places: [Cell<Seen>; PLACES],
    last: [Cell<Last>; LAST],
    count: Cell<usize>,
}

/// The offsets that a walk reads in a frame and in a code object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looks {
    /// Two in the frame.
    pub(crate) frame: [usize; 2],
    /// One in the code object.
    pub(crate) object: usize,
}

impl Frames {
    /// Prefetches the last walk's frames.
    #[inline]
    pub(crate) fn begin(&self, looks: Looks) {
        for last in self.last.iter().take(self.count.get()) {
            let Last { frame, object, place } = last.get();
            prefetch(frame + looks.frame[0]);
            prefetch(frame + looks.frame[1]);
            prefetch(object + looks.object);
            if let Some(place) = self.places.get(place) {
                prefetch(std::ptr::from_ref(place) as usize);
            }
        }
    }

    /// The slot for this frame, and its current content.
    #[inline]
    pub(crate) fn at(&self, frame: usize, code: usize, instruction: usize) -> (usize, Seen) {
        let mixed =
            (frame >> 3 ^ code >> 4).wrapping_add(instruction >> 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = mixed >> (usize::BITS - PLACES.trailing_zeros());
        (place, self.places.get(place).map_or(Seen::NOTHING, Cell::get))
    }

    /// Stores a frame in its slot.
    pub(crate) fn remember(&self, place: usize, seen: Seen) {
        if let Some(place) = self.places.get(place) {
            place.set(seen);
        }
    }

    /// Notes that the walk has visited a frame with this code object.
    #[inline]
    pub(crate) fn pass(&self, count: usize, place: usize, frame: usize, object: usize) {
        if let Some(last) = self.last.get(count) {
            last.set(Last { frame, object, place });
        }
    }

    /// Ends a walk of `count` frames.
    #[inline]
    pub(crate) fn end(&self, count: usize) {
        self.count.set(count);
    }
}
