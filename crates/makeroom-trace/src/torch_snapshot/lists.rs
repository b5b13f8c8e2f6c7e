//! Lists and tuples under construction.
//!
//! The items of a list determine its kind. Frames become one stack, events become runs of rows, and two numbers are
//! the ID of a pool; other items are kept as handles. A list is open until it is placed in another container, because
//! picklers fill long lists in batches.

use makeroom_core::FrameId;

use crate::pickle::ObjectId;

/// Maximum number of numbers kept per list: enough for one per device.
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
    /// Whether any item could be relevant to a snapshot.
    pub(super) is_wanted: bool,
}

impl OpenList {
    /// Adds a row of the event columns.
    #[inline]
    pub(super) fn push_event(&mut self, row: u32) {
        match self.runs.last_mut() {
            Some(run) if run.end == row => run.end += 1,
            _ => self.runs.push(Run { start: row, end: row + 1 }),
        }
    }

    /// Adds a number; those beyond the first few are meaningless.
    pub(super) fn push_number(&mut self, number: u64) {
        if self.numbers.len() < MOST_NUMBERS {
            self.numbers.push(number);
        }
    }

    /// Clears it for the next list.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.runs.clear();
        self.items.clear();
        self.numbers.clear();
        self.is_wanted = false;
    }
}

/// A closed list that is neither a stack nor a list of events nor a pool ID.
#[derive(Clone, Debug, Default)]
pub(super) struct ClosedList {
    pub(super) items: Box<[ObjectId]>,
    pub(super) numbers: Box<[u64]>,
}
