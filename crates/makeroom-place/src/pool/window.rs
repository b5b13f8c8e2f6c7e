//! Finds the best addresses for a block if memory has to be moved or created.
//!
//! In every run of addresses without a live block, candidates start or end where free memory does. The best candidate
//! already has the most memory. Memory that cannot move, because a block shares its handle, counts twice: no other
//! window can use it.

use super::backing::PAGE;
use super::lists::Zone;
use super::policy::Policy;
use super::streams::{EVERYBODY, StreamIndex};
use super::tiles::{NONE, State, TileId};

/// Number of holes of each kind that a request examines. The recordings in `traces` have up to 52.
pub(super) const MOST_HOLES: usize = 512;

/// Unmapped addresses in a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// Where memory must start, at a page boundary.
    pub(super) start: u64,
    /// How much memory is needed, in whole pages.
    pub(super) needed: u64,
    /// The size of the unmapped addresses from `start` on.
    pub(super) room: u64,
    /// The tile of these addresses.
    pub(super) tile: TileId,
}

/// The addresses where a block will be placed.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) gaps: Vec<Gap>,
    /// The tile that contains its start.
    pub(super) tile: TileId,
}

impl Window {
    /// Whether it overlaps the interval.
    pub(super) fn touches(&self, from: u64, to: u64) -> bool {
        from < self.end && to > self.start
    }
}

/// A tile without a live block.
#[derive(Clone, Copy, Debug)]
struct Clear {
    tile: TileId,
    start: u64,
    end: u64,
    is_mapped: bool,
    /// Bytes that cannot move.
    pinned: u64,
}

impl Clear {
    /// How much the part between two addresses adds to the score of a window.
    fn score(&self, from: u64, to: u64) -> u64 {
        let length = self.end.min(to).saturating_sub(self.start.max(from));
        if self.is_mapped { length + self.pinned.min(length) } else { 0 }
    }
}

/// The best window so far: its score, the length of its run, and the window.
type Best = Option<(u64, u64, Window)>;

impl Policy {
    /// The best window for a block of a stream; `None` if no run of addresses is long enough.
    pub(super) fn best_window(&self, size: u64, zone: Zone, stream: StreamIndex) -> Option<Window> {
        let mut best: Best = None;
        let mut run: Vec<Clear> = Vec::new();
        // The range and the end of the last run.
        let mut behind = (0, 0);
        for (range, address, seed) in self.seeds(size, zone, stream) {
            if (range, address) < behind {
                continue;
            }
            let mut id = seed;
            while let Some(previous) = self.clear_at(self.tiles[id].previous, zone, stream) {
                id = previous;
            }
            while let Some(clear) = self.clear(id, zone, stream) {
                run.push(clear);
                id = self.tiles[id].next;
                if id == NONE {
                    break;
                }
            }
            behind = (range, run.last().map_or(0, |last| last.end));
            keep_best(&mut best, &mut run, size);
        }
        best.map(|(_, _, window)| window)
    }

    /// One tile of every run that may be long enough, by range and address.
    ///
    /// Neighbors that are free in the same list are one tile. Therefore, a run contains unmapped addresses or memory
    /// that is free for every stream, or it is a single tile that is large enough. Live blocks, which are the majority
    /// of tiles, and small holes of a stream need not be examined. At most [`MOST_HOLES`] tiles of each kind are
    /// examined.
    fn seeds(&self, size: u64, zone: Zone, stream: StreamIndex) -> Vec<(usize, u64, TileId)> {
        let bins = |list: u32| &self.bins[list as usize];
        let unmapped = bins(zone.unmapped()).largest_first(&self.tiles).take(MOST_HOLES);
        let everybodys = bins(zone.free(EVERYBODY)).largest_first(&self.tiles).take(MOST_HOLES);
        let own = bins(zone.free(stream)).at_least(&self.tiles, size).take(MOST_HOLES);
        let place = |id: TileId| {
            let address = self.tiles[id].address;
            (self.handles.range_number(address), address, id)
        };
        let mut seeds: Vec<_> = unmapped.chain(everybodys).chain(own).map(place).collect();
        seeds.sort_unstable();
        seeds
    }

    /// Returns the neighbor if it can be part of a run.
    fn clear_at(&self, id: TileId, zone: Zone, stream: StreamIndex) -> Option<TileId> {
        (id != NONE && self.is_clear(id, zone, stream)).then_some(id)
    }

    fn is_clear(&self, id: TileId, zone: Zone, stream: StreamIndex) -> bool {
        let tile = &self.tiles[id];
        match tile.state {
            State::Unmapped => true,
            State::Free => tile.list == zone.free(stream) || tile.list == zone.free(EVERYBODY),
            _ => false,
        }
    }

    fn clear(&self, id: TileId, zone: Zone, stream: StreamIndex) -> Option<Clear> {
        let tile = &self.tiles[id];
        let (start, end) = (tile.address, tile.end());
        let is_mapped = tile.state == State::Free;
        self.is_clear(id, zone, stream).then(|| {
            let pinned = if is_mapped { tile.size - self.handles.movable(start, end) } else { 0 };
            Clear { tile: id, start, end, is_mapped, pinned }
        })
    }
}

/// Keeps the best window (among equals, the one in the shortest run) and starts a new run.
fn keep_best(best: &mut Best, run: &mut Vec<Clear>, size: u64) {
    let length = run.last().map_or(0, |last| last.end) - run.first().map_or(0, |first| first.start);
    let mut found = None;
    for (score, start) in windows(run, size) {
        let (most, shortest) = found.map_or_else(
            || best.as_ref().map_or((None, 0), |&(most, shortest, _)| (Some(most), shortest)),
            |(most, _)| (Some(most), length),
        );
        if most.is_none_or(|most| score > most || (score == most && length < shortest)) {
            found = Some((score, start));
        }
    }
    if let Some((score, start)) = found {
        *best = Some((score, length, window(run, start, size)));
    }
    run.clear();
}

/// The starts of a run's windows, with their scores.
fn windows(run: &[Clear], size: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let (low, high) = (run.first().map_or(0, |first| first.start), run.last().map_or(0, |last| last.end));
    // The score of everything before each tile.
    let mut before = vec![0];
    if high - low >= size {
        before.extend(run.iter().scan(0, |sum, clear| {
            *sum += clear.score(low, high);
            Some(*sum)
        }));
    }
    let starts = run
        .iter()
        .flat_map(move |clear| [Some(clear.start), clear.end.checked_sub(size)])
        .flatten()
        .filter(move |&start| start >= low && start <= high && high - start >= size);
    starts.map(move |start| {
        let end = start + size;
        let first = run.partition_point(|clear| clear.end <= start);
        let last = run.partition_point(|clear| clear.start < end) - 1;
        let score = if first == last {
            run[first].score(start, end)
        } else {
            run[first].score(start, end) + (before[last] - before[first + 1]) + run[last].score(start, end)
        };
        (score, start)
    })
}

fn window(run: &[Clear], start: u64, size: u64) -> Window {
    let end = start + size;
    let mut gaps = Vec::new();
    for clear in run.iter().filter(|clear| !clear.is_mapped && clear.start < end && clear.end > start) {
        let (from, to) = (clear.start.max(start), clear.end.min(end));
        let from = from - from % PAGE;
        let needed = (to - from).next_multiple_of(PAGE);
        gaps.push(Gap { start: from, needed, room: clear.end - from, tile: clear.tile });
    }
    let tile = run[run.partition_point(|clear| clear.end <= start)].tile;
    Window { start, end, gaps, tile }
}
