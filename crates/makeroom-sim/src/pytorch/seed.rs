//! Restores the state of an allocator at the start of a recording.
//!
//! Segments and live blocks are known (see [`Start`]). The free blocks between them follow: PyTorch merges free
//! neighbors, so every gap is one block. Only the true sizes of blocks that are freed during the recording are assumed:
//! the rounded request, plus a remainder too small to be split off.

use makeroom_core::{FastMap, OlderBlock, OlderSegment, PoolId, Start};

use super::blocks::{Block, BlockId, Use};
use super::expandable::RESERVATION;
use super::rounding::{SMALL, SMALL_SEGMENT};
use super::{Pytorch, Settings};

/// Reservations are larger than any GPU's memory; a segment farther below than this belongs to another reservation.
const FARTHEST_FRONT: u64 = 64 << 30;

impl Pytorch {
    /// An allocator in the state before a recording's first event. Blocks are numbered 0, 1, … in the order of
    /// `start.blocks`. Also returns the number of blocks with an assumed size.
    pub fn at_start(settings: Settings, limit: Option<u64>, start: &Start) -> (Self, usize) {
        let mut allocator = Self::new(settings, limit);
        let mut assumed = 0;
        let mut first = 0;
        let mut reservations: FastMap<ReservationKey, BlockId> = FastMap::default();
        let mut mapped_later: Vec<(u64, u64)> =
            start.mapped_later.iter().map(|&(stream, address)| (stream.0, address.0)).collect();
        mapped_later.sort_unstable();
        let mut covered = 0;
        let mut below = None;
        for segment in &start.segments {
            let begin = segment.address.0;
            let end = begin.saturating_add(segment.size.get());
            // Memory belongs to one segment. A damaged recording may contradict that; then the first one is used.
            if begin < covered {
                continue;
            }
            covered = end;
            first += start.blocks[first..].partition_point(|block| block.address.0 < begin);
            let count = start.blocks[first..].partition_point(|block| block.address.0 < end);
            let blocks = &start.blocks[first..first + count];
            let is_small = segment.is_small.unwrap_or_else(|| looks_small(segment, blocks));
            let pool = allocator.pool_of(segment.pool, is_small);
            let reservation = (segment.stream.0, is_small, segment.pool);
            let previous = segment.is_expandable.then(|| {
                let last = reservations.get(&reservation).copied();
                last.and_then(|last| allocator.seed_gap(last, segment))
                    .or_else(|| allocator.seed_front(segment, pool, below, &mapped_later))
            });
            let previous = previous.flatten();
            below = Some(begin);
            let lifetime = SegmentLifetime {
                pool,
                segment: previous.map_or(begin, |id| allocator.blocks.get(id).segment),
            };
            let chain = allocator.seed_segment(segment, blocks, first, lifetime, previous, is_small);
            assumed += chain.assumed;
            allocator.reserved = allocator.reserved.saturating_add(end - begin);
            if let Some(last) = chain.last.filter(|_| segment.is_expandable) {
                reservations.insert(reservation, last);
            }
            first += count;
        }
        for last in reservations.into_values() {
            allocator.seed_tail(last);
        }
        (allocator, assumed)
    }

    /// Fills one segment with its live blocks and the free ones between them. `previous` is the block before it in the
    /// same reservation.
    fn seed_segment(
        &mut self,
        segment: &OlderSegment,
        live: &[OlderBlock],
        first_number: usize,
        lifetime: SegmentLifetime,
        previous: Option<BlockId>,
        is_small: bool,
    ) -> Chain {
        let end = segment.address.0.saturating_add(segment.size.get());
        let mut chain = Chain { last: previous, assumed: 0 };
        let mut cursor = segment.address.0;
        for (index, block) in live.iter().enumerate() {
            self.seed_block(&mut chain, segment, lifetime, cursor, block.address.0, Use::Unused);
            let next = live.get(index + 1).map_or(end, |next| next.address.0);
            let size = block.size().map_or_else(
                || {
                    chain.assumed += 1;
                    self.assumed_size(block, next, is_small, segment.is_expandable)
                },
                makeroom_core::Bytes::get,
            );
            let to = block.address.0.saturating_add(size).min(next);
            let usage = if block.is_pending { Use::Pending } else { Use::Allocated };
            if let Some(id) = self.seed_block(&mut chain, segment, lifetime, block.address.0, to, usage) {
                self.remember((first_number + index) as u32, id);
            }
            cursor = to;
        }
        self.seed_block(&mut chain, segment, lifetime, cursor, end, Use::Unused);
        chain
    }

    /// The size of a block that is freed during the recording. Blocks that are split exactly have the rounded size of
    /// their request; others also include the remainder, up to the next block.
    fn assumed_size(&self, block: &OlderBlock, next: u64, is_small: bool, is_expandable: bool) -> u64 {
        let size = self.settings.round_size(block.requested.get());
        if is_small || is_expandable {
            return size;
        }
        let room = next.saturating_sub(block.address.0);
        if size >= self.settings.max_split_size {
            return room;
        }
        let end = block.end().map_or(next, |end| end.0.min(next));
        let rest = end.saturating_sub(block.address.0.saturating_add(size));
        if rest <= SMALL { size + rest } else { size }
    }

    fn seed_block(
        &mut self,
        chain: &mut Chain,
        segment: &OlderSegment,
        lifetime: SegmentLifetime,
        from: u64,
        to: u64,
        usage: Use,
    ) -> Option<BlockId> {
        if to <= from {
            return None;
        }
        let id = self.blocks.add(Block {
            address: from,
            size: to - from,
            stream: segment.stream.0,
            pool: lifetime.pool,
            previous: chain.last,
            next: None,
            usage,
            is_mapped: true,
            is_expandable: segment.is_expandable,
            segment: lifetime.segment,
            age_base: 0,
        });
        if let Some(previous) = chain.last {
            self.blocks.link(previous, id);
        }
        if usage == Use::Unused {
            self.blocks.insert_unused(id);
        }
        chain.last = Some(id);
        chain.last
    }

    /// The hole between the current end of a reservation and its next mapped range.
    fn seed_gap(&mut self, last: BlockId, segment: &OlderSegment) -> Option<BlockId> {
        let block = self.blocks.get(last);
        let gap = segment.address.0.checked_sub(block.address + block.size)?;
        (gap > 0 && gap < RESERVATION).then(|| self.seed_hole(last, gap))
    }

    /// The unmapped front of a reservation, if pages below the first mapped range are mapped later. `below` is the
    /// start of the previous segment, and `mapped_later` is sorted.
    fn seed_front(
        &mut self,
        segment: &OlderSegment,
        pool: u32,
        below: Option<u64>,
        mapped_later: &[(u64, u64)],
    ) -> Option<BlockId> {
        let (stream, begin) = (segment.stream.0, segment.address.0);
        let lowest = below
            .map_or(0, |below: u64| below.saturating_add(1))
            .max(begin.saturating_sub(FARTHEST_FRONT - 1));
        let first = mapped_later.partition_point(|&mapped| mapped < (stream, lowest));
        let &(_, base) = mapped_later.get(first).filter(|&&mapped| mapped < (stream, begin))?;
        let hole = self.blocks.add(Block {
            address: base,
            size: begin - base,
            stream: segment.stream.0,
            pool,
            previous: None,
            next: None,
            usage: Use::Unused,
            is_mapped: false,
            is_expandable: true,
            segment: base,
            age_base: 0,
        });
        self.blocks.insert_unused(hole);
        Some(hole)
    }

    /// The unmapped rest of a reservation.
    fn seed_tail(&mut self, last: BlockId) {
        let block = *self.blocks.get(last);
        let end = block.segment.saturating_add(RESERVATION);
        self.seed_hole(last, end.saturating_sub(block.address + block.size));
    }

    fn seed_hole(&mut self, after: BlockId, size: u64) -> BlockId {
        let block = *self.blocks.get(after);
        let hole = self.blocks.add(Block {
            address: block.address + block.size,
            size,
            previous: Some(after),
            next: None,
            usage: Use::Unused,
            is_mapped: false,
            ..block
        });
        self.blocks.link(after, hole);
        self.blocks.insert_unused(hole);
        hole
    }
}

#[derive(Clone, Copy)]
struct SegmentLifetime {
    pool: u32,
    /// The start of the segment, or of its reservation.
    segment: u64,
}

struct Chain {
    last: Option<BlockId>,
    assumed: usize,
}

/// An address range belongs to one stream, to small or large blocks, and to one pool. Its mapped ranges are separated
/// by holes.
type ReservationKey = (u64, bool, PoolId);

/// Whether a segment whose kind is not recorded contains small blocks.
fn looks_small(segment: &OlderSegment, blocks: &[OlderBlock]) -> bool {
    if segment.is_expandable {
        !blocks.is_empty() && blocks.iter().all(|block| block.requested.get() <= SMALL)
    } else {
        segment.size.get() <= SMALL_SEGMENT
    }
}
