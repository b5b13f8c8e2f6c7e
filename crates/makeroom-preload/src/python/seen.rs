//! Frames that the calling thread's last walks passed. From one allocation to the next most frames of a stack stay as they
//! are, and a frame that stands where it stood, in the same code at the same instruction, need not be looked up again:
//! of its code object only the line table's address is compared, so that an address that is used again is noticed.
//!
//! This matters where a program's own work throws the recorder's memory out of the processor's caches: a frame then
//! costs two lines of memory instead of five.

use std::cell::Cell;

/// Frames that are remembered for a thread; frames lie side by side, so few share a place.
const PLACES: usize = 128;
/// Frames are hardly ever smaller.
const FRAME_BITS: u32 = 6;

/// A frame as it was passed.
#[derive(Clone, Copy, Debug)]
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

/// What one thread remembers.
pub(super) struct Frames([Cell<Seen>; PLACES]);

thread_local! {
    // Constant and without a destructor: usable at any moment of a thread's life.
    static FRAMES: Frames = const { Frames([const { Cell::new(Seen::NOTHING) }; PLACES]) };
}

/// Calls with what the calling thread remembers. Finding that costs a call, so it is made once for a whole stack.
pub(super) fn with<T>(work: impl FnOnce(&Frames) -> T) -> T {
    FRAMES.with(work)
}

impl Frames {
    /// What was last seen where this frame would be remembered.
    #[inline]
    pub(super) fn at(&self, frame: usize) -> Seen {
        self.0.get(place(frame)).map_or(Seen::NOTHING, Cell::get)
    }

    /// Remembers a frame.
    #[inline]
    pub(super) fn remember(&self, seen: Seen) {
        if let Some(place) = self.0.get(place(seen.frame)) {
            place.set(seen);
        }
    }
}

#[inline]
fn place(frame: usize) -> usize {
    (frame >> FRAME_BITS) % PLACES
}
