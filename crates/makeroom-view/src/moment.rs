//! The address space at one moment: segments, their blocks, and the free ranges between them.
//!
//! ```text
//! reserved = live + rounding + free          in total and for each segment
//! rows of a segment in states live and pending = live + rounding;   in state free = free
//! ```
//!
//! Allocations outside segments (a plain `cudaMalloc`) are shown in groups of neighbors, as segments of the kind
//! `driver`; the gaps between them do not belong to the program.

use makeroom_core::{PoolId, SortCompact as _, StreamId};
use makeroom_explain::{Allocation, BlockEnds, BlockSizes, HeldSegment, LiveBlock, Part, cut, is_small};
use serde::Serialize;

use crate::input::Recording;
use crate::sites::page_number;
use crate::timeline::{Sites, Timeline};

/// Maximum number of rows in one response.
const MOST_ROWS: usize = 20_000;
/// Width of the widest drawing in pixels: smaller rows may be merged.
const WIDTH: u64 = 2500;
/// Maximum distance between neighbors outside segments that are shown as one group.
const FARTHEST: u64 = 32 << 20;
/// Maximum size of a small request, which PyTorch serves from separate segments.
const LARGEST_SMALL: u64 = 1 << 20;

const FREE: u64 = 0;
const LIVE: u64 = 1;
const PENDING: u64 = 2;
const MERGED: u64 = 3;
const NOBODYS: u64 = 4;

/// Offset, size, state, and the site; for merged rows, the live share in thousandths instead of the site.
type BlockRow = (u64, u64, u64, i64);

/// The memory of one device at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct Moment {
    event: usize,
    time: Option<u64>,
    live: u64,
    rounding: u64,
    free: u64,
    reserved: u64,
    pending: u64,
    segments: Vec<SegmentRow>,
}

/// One segment.
#[derive(Debug, Serialize)]
struct SegmentRow {
    address: String,
    size: u64,
    reserved: u64,
    live: u64,
    rounding: u64,
    free: u64,
    largest_free: u64,
    stream: String,
    kind: &'static str,
    pool: Option<String>,
    rows: usize,
    merged: bool,
    blocks: Vec<BlockRow>,
    #[serde(skip)]
    at: SegmentClass,
}

/// The properties that determine whether a request may use a segment.
#[derive(Clone, Copy, Debug)]
struct SegmentClass {
    address: u64,
    stream: StreamId,
    pool: PoolId,
    is_small: bool,
    pending: u64,
}

/// The memory at a position. If there are too many rows, small neighbors are merged.
pub(crate) fn moment(recording: &Recording, timeline: &Timeline, sites: &Sites, position: usize) -> Moment {
    let mut moment = whole(recording, timeline, sites, position);
    let rows: usize = moment.segments.iter().map(|segment| segment.rows).sum();
    if rows > MOST_ROWS {
        // Segments are drawn to the same scale, the largest at full width.
        let largest = moment.segments.iter().map(|segment| segment.size).max().unwrap_or(0);
        let mut pixel = (largest / WIDTH).max(1);
        while moment.segments.iter().map(|segment| segment.blocks.len()).sum::<usize>() > MOST_ROWS {
            for segment in &mut moment.segments {
                segment.merge(pixel);
            }
            if pixel >= largest {
                break;
            }
            pixel = pixel.saturating_mul(2);
        }
    }
    moment
}

/// One segment at a moment with all its blocks, up to the limit; `None` if no segment starts there.
pub(crate) fn segment(
    recording: &Recording,
    timeline: &Timeline,
    sites: &Sites,
    (position, address): (usize, u64),
) -> Option<Moment> {
    let mut moment = whole(recording, timeline, sites, position);
    moment.segments.retain(|segment| segment.at.address == address);
    let segment = moment.segments.first_mut()?;
    let mut pixel = (segment.size / WIDTH).max(1);
    while segment.blocks.len() > MOST_ROWS && pixel < segment.size {
        segment.merge(pixel);
        pixel = pixel.saturating_mul(2);
    }
    Some(moment)
}

/// The largest free block that a request on a stream could have used, if segments are known.
pub(crate) fn largest_hole(
    recording: &Recording,
    timeline: &Timeline,
    position: usize,
    (request, stream): (u64, StreamId),
) -> Option<u64> {
    let wants_small = request <= LARGEST_SMALL;
    timeline.reserved.has_segments.then(|| {
        let moment = whole(recording, timeline, &timeline.grouping.sites, position);
        let usable = moment.segments.iter().filter(|segment| {
            let at = segment.at;
            at.stream == stream && at.is_small == wants_small && at.pool == PoolId::DEFAULT
        });
        usable.map(|segment| segment.largest_free).max().unwrap_or(0)
    })
}

/// Memory that is reserved but unused at the peak and at the position of interest: reserved = live + rounding + unused.
pub(crate) fn unused(recording: &Recording, timeline: &Timeline) -> (u64, u64) {
    *timeline.unused.get_or_init(|| {
        if !timeline.reserved.has_segments {
            return (0, 0);
        }
        let unused_at = |position: usize| whole(recording, timeline, &timeline.grouping.sites, position).free;
        let (peak, interest) = (timeline.allocations.peak.0, timeline.interest());
        let at_peak = unused_at(peak);
        (at_peak, if interest == peak { at_peak } else { unused_at(interest) })
    })
}

fn whole(recording: &Recording, timeline: &Timeline, sites: &Sites, position: usize) -> Moment {
    let trace = &recording.trace;
    let (blocks, allocations) = timeline.blocks_at(trace, position);
    let held_segments = timeline.segments_at(trace, position);
    let settings = &timeline.settings;
    let ends = BlockEnds::new(timeline.device(trace), settings, &held_segments, &blocks, position);
    let known = Known {
        sites,
        sizes: BlockSizes { at_end: &timeline.sizes_at_end, ends: &ends, settings, position },
    };
    let mut segments = Vec::new();
    let mut outside: Vec<SegmentRow> = Vec::new();
    let mut next = 0;
    for held in &held_segments {
        let before = next + blocks[next..].partition_point(|block| block.address < held.address);
        outside.extend(known.outside(&blocks[next..before], &allocations[next..before]));
        let end = held.address.saturating_add(held.size);
        let inside = before + blocks[before..].partition_point(|block| block.address < end);
        segments.push(known.segment(held, &blocks[before..inside], &allocations[before..inside]));
        next = inside;
    }
    outside.extend(known.outside(&blocks[next..], &allocations[next..]));
    segments.extend(outside);
    segments.sort_compact_by_key(|segment| segment.at.address);
    let sum = |of: fn(&SegmentRow) -> u64| segments.iter().map(of).fold(0_u64, u64::saturating_add);
    Moment {
        event: position,
        time: timeline.time_since_start(trace, position),
        live: sum(|segment| segment.live),
        rounding: sum(|segment| segment.rounding),
        free: sum(|segment| segment.free),
        reserved: sum(|segment| segment.reserved),
        pending: sum(|segment| segment.at.pending),
        segments,
    }
}

struct Known<'timeline> {
    sites: &'timeline Sites,
    sizes: BlockSizes<'timeline>,
}

impl Known<'_> {
    fn segment(&self, held: &HeldSegment, blocks: &[LiveBlock], allocations: &[Allocation]) -> SegmentRow {
        let is_small = is_small(held, blocks);
        let kind = match held {
            held if held.pool != PoolId::DEFAULT => "pool",
            held if held.is_expandable => "expandable",
            _ if is_small => "small",
            _ => "large",
        };
        let mut row = SegmentRow::new(held.address, held.size, kind);
        row.reserved = held.size;
        row.stream = format!("{:#x}", held.stream.0);
        row.pool = (held.pool != PoolId::DEFAULT).then(|| format!("{}, {}", held.pool.0, held.pool.1));
        row.at = SegmentClass { stream: held.stream, pool: held.pool, is_small, ..row.at };
        cut(held, blocks, &self.sizes, |part| match part {
            Part::Unused { from, to } => {
                row.free = row.free.saturating_add(to - from);
                row.largest_free = row.largest_free.max(to - from);
                row.blocks.push((from - held.address, to - from, FREE, -1));
            }
            Part::Block { index, size } => self.add(&mut row, &blocks[index], &allocations[index], size),
        });
        row.rows = row.blocks.len();
        row
    }

    /// Blocks outside segments, in groups of neighbors.
    fn outside(&self, blocks: &[LiveBlock], allocations: &[Allocation]) -> Vec<SegmentRow> {
        let mut runs: Vec<SegmentRow> = Vec::new();
        for (block, allocation) in blocks.iter().zip(allocations) {
            let size = block.requested.get();
            let end = |row: &SegmentRow| row.at.address.saturating_add(row.size);
            let is_neighbour = |row: &SegmentRow| {
                row.at.stream == allocation.stream && block.address.saturating_sub(end(row)) <= FARTHEST
            };
            if !runs.last().is_some_and(is_neighbour) {
                let mut row = SegmentRow::new(block.address, 0, "driver");
                row.stream = format!("{:#x}", allocation.stream.0);
                row.at.stream = allocation.stream;
                runs.push(row);
            }
            let Some(row) = runs.last_mut() else { continue };
            let gap = block.address.saturating_sub(end(row));
            if gap > 0 {
                row.blocks.push((row.size, gap, NOBODYS, -1));
                row.size = row.size.saturating_add(gap);
            }
            self.add(row, block, allocation, size);
            row.size = row.size.saturating_add(size);
            row.reserved = row.reserved.saturating_add(size);
        }
        for row in &mut runs {
            row.rows = row.blocks.len();
        }
        runs
    }

    fn add(&self, row: &mut SegmentRow, block: &LiveBlock, allocation: &Allocation, size: u64) {
        let requested = block.requested.get();
        row.live = row.live.saturating_add(requested);
        row.rounding = row.rounding.saturating_add(size.saturating_sub(requested));
        if block.is_pending() {
            row.at.pending = row.at.pending.saturating_add(requested);
        }
        let state = if block.is_pending() { PENDING } else { LIVE };
        let holder = page_number(self.sites.site_of(allocation));
        row.blocks.push((block.address - row.at.address, size, state, holder));
    }
}

impl SegmentRow {
    fn new(address: u64, size: u64, kind: &'static str) -> Self {
        Self {
            address: format!("{address:#x}"),
            size,
            reserved: 0,
            live: 0,
            rounding: 0,
            free: 0,
            largest_free: 0,
            stream: String::new(),
            kind,
            pool: None,
            rows: 0,
            merged: false,
            blocks: Vec::new(),
            at: SegmentClass {
                address,
                stream: StreamId::default(),
                pool: PoolId::DEFAULT,
                is_small: false,
                pending: 0,
            },
        }
    }

    /// Merges neighbors that are smaller than `least` into rows of about that size.
    fn merge(&mut self, least: u64) {
        let mut merged: Vec<BlockRow> = Vec::new();
        let mut run = Run::default();
        for &row in &self.blocks {
            if row.1 >= least {
                merged.extend(run.take());
                merged.push(row);
                continue;
            }
            run.add(row);
            if run.size >= least {
                merged.extend(run.take());
            }
        }
        merged.extend(run.take());
        self.merged = true;
        self.blocks = merged;
    }
}

/// Small rows to merge.
#[derive(Default)]
struct Run {
    first: Option<BlockRow>,
    count: usize,
    size: u64,
    live: u64,
}

impl Run {
    fn add(&mut self, row: BlockRow) {
        let (_, size, state, share) = row;
        self.first.get_or_insert(row);
        self.count += 1;
        self.size = self.size.saturating_add(size);
        self.live = self.live.saturating_add(match state {
            LIVE | PENDING => size,
            MERGED => (u128::from(size) * u128::from(share.unsigned_abs()) / 1000) as u64,
            _ => 0,
        });
    }

    /// The merged row; a single one is unchanged.
    fn take(&mut self) -> Option<BlockRow> {
        let Self { first, count, size, live } = std::mem::take(self);
        let first = first?;
        if count == 1 {
            return Some(first);
        }
        let share = u128::from(live) * 1000 / u128::from(size.max(1));
        Some((first.0, size, MERGED, share as i64))
    }
}
