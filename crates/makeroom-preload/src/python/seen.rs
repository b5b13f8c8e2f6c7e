//! Frames that the calling thread's walks passed. From one allocation to the next most frames of a stack stay as they are,
//! and a frame that stands where it stood, in the same code at the same instruction, need not be looked up again: of its
//! code object only the line table's address is compared, so that an address that is used again is noticed.
//!
//! A program's own work throws all of this out of the processor's caches, and frames are a chain: each is known only
//! when the one before it was read. So the last walk's frames are asked for all at once before a walk begins; they come
//! while the first of them are looked at.

use std::cell::Cell;

/// Frames that are remembered for a thread: several per place of its stack, as it calls functions in turn.
const PLACES: usize = 512;
/// Frames of the last walk that are asked for; outer ones come as they are met.
const LAST: usize = 32;

/// A frame as it was passed, in one line of memory.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Seen {
    /// Where it stands.
    pub(super) frame: usize,
    /// Its code object, as the frame holds it.
    pub(super) code: usize,
    /// Its instruction, as the frame holds it.
    pub(super) instruction: usize,
    /// The line table of the code.
    pub(super) lines: usize,
    /// The function and where in it the frame is, as in stacks.
    pub(super) word: u64,
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

/// What one thread remembers. All zeros are nothing.
#[derive(Debug)]
pub(crate) struct Frames {
    places: [Cell<Seen>; PLACES],
    last: [Cell<Last>; LAST],
    count: Cell<usize>,
}

/// Where in a frame and in a code object a walk looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looks {
    /// At two places of the frame.
    pub(super) frame: [usize; 2],
    /// At one of the code object.
    pub(super) object: usize,
}

impl Frames {
    /// Asks for the memory of the last walk's frames.
    #[inline]
    pub(super) fn begin(&self, looks: Looks) {
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

    /// Where this frame would be remembered, and what was last seen there.
    #[inline]
    pub(super) fn at(&self, frame: usize, code: usize, instruction: usize) -> (usize, Seen) {
        let mixed =
            (frame >> 3 ^ code >> 4).wrapping_add(instruction >> 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = mixed >> (usize::BITS - PLACES.trailing_zeros());
        (place, self.places.get(place).map_or(Seen::NOTHING, Cell::get))
    }

    /// Remembers a frame.
    pub(super) fn remember(&self, place: usize, seen: Seen) {
        if let Some(place) = self.places.get(place) {
            place.set(seen);
        }
    }

    /// A walk has passed a frame whose code is this object.
    #[inline]
    pub(super) fn pass(&self, count: usize, place: usize, frame: usize, object: usize) {
        if let Some(last) = self.last.get(count) {
            last.set(Last { frame, object, place });
        }
    }

    /// A walk has passed so many frames.
    #[inline]
    pub(super) fn end(&self, count: usize) {
        self.count.set(count);
    }
}

/// Asks for a line of memory without waiting for it. Any address may be asked for.
#[inline]
pub(crate) fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; the processor ignores addresses that it cannot read.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address as *const i8);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
