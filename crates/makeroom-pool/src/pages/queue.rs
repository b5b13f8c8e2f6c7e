//! Reports that are applied together.
//!
//! Between two reports a program replaces the contents of the processor's caches, so a report that changes the tables at
//! once waits for main memory several times. Most reports need not change them yet: a freed block matters only to a later
//! request for memory, and a placed block whose pages all have memory needs nothing. These are kept here in their order,
//! until there are many or something else needs the tables. Then the tables are brought into the caches once for the whole
//! batch.

use crate::prefetch::prefetch;

/// At most this many reports are applied together. Each is 16 bytes.
const MOST: usize = 1 << 11;
/// Reports in a cache line.
const PER_LINE: usize = 4;

/// A block was placed or freed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Report {
    pub(super) address: u64,
    /// The highest bit is set for a freed block.
    size: u64,
}

const FREED: u64 = 1 << 63;

impl Report {
    pub(super) fn placed(address: u64, size: u64) -> Self {
        Self { address, size: size & !FREED }
    }

    pub(super) fn freed(address: u64, size: u64) -> Self {
        Self { address, size: size | FREED }
    }

    pub(super) fn size(self) -> u64 {
        self.size & !FREED
    }

    pub(super) fn is_freed(self) -> bool {
        self.size & FREED != 0
    }
}

/// Reports in their order. Never full between two calls of [`super::Pages`].
#[derive(Debug)]
#[repr(C)]
pub(super) struct Queue {
    reports: Box<[Report]>,
    length: u32,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { reports: vec![Report::default(); MOST].into_boxed_slice(), length: 0 }
    }

    /// Adds a report. Returns whether the queue is full, so that its reports must be applied before the next.
    #[inline]
    #[must_use = "a full queue takes no more reports"]
    pub(super) fn push(&mut self, report: Report) -> bool {
        let length = self.length as usize;
        if let Some(next) = self.reports.get_mut(length) {
            *next = report;
            self.length += 1;
        }
        if let Some(later) = self.reports.get(length + PER_LINE) {
            prefetch(std::ptr::from_ref(later) as usize);
        }
        length + 1 >= MOST
    }

    /// Removes all reports, and calls `apply` with each.
    pub(super) fn drain(&mut self, apply: impl FnMut(Report)) {
        let length = std::mem::take(&mut self.length) as usize;
        self.reports.iter().take(length).copied().for_each(apply);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Queue, Report};

    #[test]
    fn reports_come_out_in_their_order_and_the_last_one_fills_the_queue() {
        let mut queue = Queue::new();
        for round in 0..2 {
            for number in 0..MOST as u64 {
                let report = if number % 3 == 0 {
                    Report::freed(number, round)
                } else {
                    Report::placed(number, round)
                };
                assert_eq!(queue.push(report), number + 1 == MOST as u64);
            }
            let mut seen = Vec::new();
            queue.drain(|report| seen.push((report.address, report.size(), report.is_freed())));
            let expected: Vec<_> = (0..MOST as u64).map(|number| (number, round, number % 3 == 0)).collect();
            assert!(seen == expected && queue.is_empty());
        }
    }
}
