//! Where a block could lie if memory were put behind its addresses.
//!
//! Candidates begin or end where free memory does, in every run of addresses without a block. The best one has the
//! most memory already; memory that cannot move anyway, since a block shares its handle, counts twice: it is of use
//! to nobody else.

use super::backing::PAGE;
use super::lists::Zone;
use super::policy::Policy;
use super::streams::{EVERYBODY, StreamIndex};
use super::tiles::{NONE, State};

/// Addresses in a window without memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// Where memory is to begin, at a page.
    pub(super) start: u64,
    /// How much is needed, in whole pages.
    pub(super) needed: u64,
    /// How much there are addresses for.
    pub(super) room: u64,
}

/// Where a block is to lie.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) gaps: Vec<Gap>,
}

impl Window {
    /// Whether any of it lies between two addresses.
    pub(super) fn touches(&self, from: u64, to: u64) -> bool {
        from < self.end && to > self.start
    }
}

/// A tile without a block.
#[derive(Clone, Copy, Debug)]
struct Clear {
    start: u64,
    end: u64,
    is_mapped: bool,
    /// Memory that cannot move.
    pinned: u64,
}

impl Policy {
    /// The best window for a block of a stream; `None` where no run of addresses is long enough.
    pub(super) fn best_window(&self, size: u64, zone: Zone, stream: StreamIndex) -> Option<Window> {
        let mut best: Option<(u64, u64, Window)> = None;
        let mut run: Vec<Clear> = Vec::new();
        for range in self.handles.ranges.iter().filter(|range| range.zone == zone) {
            let mut id = range.first;
            while id != NONE {
                match self.clear(id, zone, stream) {
                    Some(clear) => run.push(clear),
                    None => keep_best(&mut best, &mut run, size),
                }
                id = self.tiles[id].next;
            }
            keep_best(&mut best, &mut run, size);
        }
        best.map(|(_, _, window)| window)
    }

    fn clear(&self, id: u32, zone: Zone, stream: StreamIndex) -> Option<Clear> {
        let tile = &self.tiles[id];
        let (start, end) = (tile.address, tile.end());
        match tile.state {
            State::Unmapped => Some(Clear { start, end, is_mapped: false, pinned: 0 }),
            State::Free if tile.list == zone.free(stream) || tile.list == zone.free(EVERYBODY) => {
                let movable: u64 =
                    self.handles.within(start, end).map(|handle| self.handles.get(handle).piece.size).sum();
                Some(Clear { start, end, is_mapped: true, pinned: tile.size - movable })
            }
            _ => None,
        }
    }
}

/// Keeps the best window, of equal ones that of the shortest run, and begins a new run.
fn keep_best(best: &mut Option<(u64, u64, Window)>, run: &mut Vec<Clear>, size: u64) {
    let length = run.last().map_or(0, |last| last.end) - run.first().map_or(0, |first| first.start);
    for (score, window) in windows(run, size) {
        let is_better =
            |&(most, shortest, _): &(u64, u64, Window)| score > most || (score == most && length < shortest);
        if best.as_ref().is_none_or(is_better) {
            *best = Some((score, length, window));
        }
    }
    run.clear();
}

/// All windows of a run, with their scores.
fn windows(run: &[Clear], size: u64) -> impl Iterator<Item = (u64, Window)> + '_ {
    let (Some(first), Some(last)) = (run.first(), run.last()) else {
        return None.into_iter().flatten();
    };
    let (low, high) = (first.start, last.end);
    let starts = run
        .iter()
        .flat_map(move |clear| [Some(clear.start), clear.end.checked_sub(size)])
        .flatten()
        .filter(move |&start| start >= low && high - start >= size);
    Some(starts.map(move |start| measure(run, start, size))).into_iter().flatten()
}

fn measure(run: &[Clear], start: u64, size: u64) -> (u64, Window) {
    let end = start + size;
    let mut score = 0;
    let mut gaps = Vec::new();
    for clear in run.iter().filter(|clear| clear.start < end && clear.end > start) {
        let (from, to) = (clear.start.max(start), clear.end.min(end));
        if clear.is_mapped {
            score += (to - from) + clear.pinned.min(to - from);
        } else {
            let from = from - from % PAGE;
            let needed = (to - from).next_multiple_of(PAGE);
            gaps.push(Gap { start: from, needed, room: clear.end - from });
        }
    }
    (score, Window { start, end, gaps })
}
