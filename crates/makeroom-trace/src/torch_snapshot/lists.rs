//! A list or tuple on its way to what it stands for.
//!
//! What a list is follows from what is in it. Frames become one stack, events become runs of rows, two numbers
//! are the identity of a pool; everything else is kept as handles. A list is open until it is placed in another
//! container, since picklers fill long lists in portions.

use makeroom_core::FrameId;

use crate::pickle::ObjectId;

/// How many numbers of a list are kept: enough for one per device.
const MOST_NUMBERS: usize = 64;

/// A range of rows of the event columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Run {
    /// How many rows it has.
    pub(super) fn len(self) -> u64 {
        u64::from(self.end - self.start)
    }
}

/// The content of a list, sorted by kind; real lists have only one.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenList {
    pub(super) frames: Vec<FrameId>,
    pub(super) runs: Vec<Run>,
    pub(super) items: Vec<ObjectId>,
    pub(super) numbers: Vec<u64>,
    /// Whether one of the items could matter to a snapshot.
    pub(super) is_wanted: bool,
}

impl OpenList {
    /// Takes in a row of the event columns.
    #[inline]
    pub(super) fn push_event(&mut self, row: u32) {
        match self.runs.last_mut() {
            Some(run) if run.end == row => run.end += 1,
            _ => self.runs.push(Run { start: row, end: row + 1 }),
        }
    }

    /// Takes in a number; beyond the first few they have no meaning.
    pub(super) fn push_number(&mut self, number: u64) {
        if self.numbers.len() < MOST_NUMBERS {
            self.numbers.push(number);
        }
    }

    /// Forgets everything, for the next list.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.runs.clear();
        self.items.clear();
        self.numbers.clear();
        self.is_wanted = false;
    }
}

/// A list that is placed and has neither frames nor events nor the shape of a pool's identity.
#[derive(Clone, Debug, Default)]
pub(super) struct ClosedList {
    pub(super) items: Box<[ObjectId]>,
    pub(super) numbers: Box<[u64]>,
}
