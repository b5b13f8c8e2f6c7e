//! Cuts reserved memory into what is live, what rounding took, and the unused pieces between.
//!
//! ```text
//! reserved = live + rounding + cached        cached = Σ pieces
//! ```
//!
//! How a single segment is cut is `cut.rs`'s.

use makeroom_core::{Bytes, DeviceTrace, PoolId, StreamId};
use makeroom_sim::Settings;

use super::cut::{BlockSizes, LARGEST_UNSPLIT, Part, SizesAtEnd, cut, is_small};
use super::ends::BlockEnds;
use super::segments::HeldSegment;
use super::state::{LiveBlock, State};

/// What segments that grow are made of.
const PAGE: u64 = 2 << 20;

/// An unused part of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) size: Bytes,
    pub(crate) stream: StreamId,
    pub(crate) is_small: bool,
    pub(crate) pool: PoolId,
}

/// Reserved memory, cut up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces {
    pub(crate) reserved: Bytes,
    pub(crate) live: Bytes,
    pub(crate) pending: Bytes,
    pub(crate) rounding: Bytes,
    /// Requested bytes of live blocks in private pools.
    pub(crate) private_live: Bytes,
    /// Everything reserved for private pools.
    pub(crate) private_reserved: Bytes,
    pub(crate) free: Vec<Piece>,
    /// What of it the allocator can give back to the driver: whole segments, and whole pages of those that grow.
    pub(crate) releasable: Bytes,
    /// Live blocks outside of every known segment: the recording does not say what holds them.
    pub(crate) homeless: Bytes,
}

impl Pieces {
    /// What the allocator held: its segments, or what is live where the recording has no segments.
    pub(super) fn held(&self, has_segments: bool) -> Bytes {
        self.homeless + if has_segments { self.reserved } else { self.live }
    }

    /// Cuts up the state after the event `moment`; `None` is before the first.
    pub(crate) fn new(
        device: &DeviceTrace,
        settings: &Settings,
        state: &State,
        moment: Option<usize>,
    ) -> Self {
        let position = moment.map_or(0, |moment| moment + 1);
        let at_end = SizesAtEnd::new(device, position);
        let ends = BlockEnds::new(device, settings, &state.segments, &state.blocks, position);
        let sizes = BlockSizes { at_end: &at_end, ends: &ends, settings, position };
        let mut pieces = Self::default();
        let mut rest = state.blocks.as_slice();
        for segment in &state.segments {
            let before = rest.partition_point(|block| block.address < segment.address);
            pieces.homeless += rest[..before].iter().map(|block| block.requested).sum();
            rest = &rest[before..];
            let end = segment.address.saturating_add(segment.size);
            let inside = rest.partition_point(|block| block.address < end);
            pieces.add(segment, &rest[..inside], &sizes);
            rest = &rest[inside..];
        }
        pieces.homeless += rest.iter().map(|block| block.requested).sum();
        pieces
    }

    fn add(&mut self, segment: &HeldSegment, blocks: &[LiveBlock], sizes: &BlockSizes<'_>) {
        let is_small = is_small(segment, blocks);
        let is_private = segment.pool != PoolId::DEFAULT;
        self.reserved += Bytes::new(segment.size);
        if is_private {
            self.private_reserved += Bytes::new(segment.size);
        }
        let is_unused = blocks.is_empty();
        cut(segment, blocks, sizes, |part| match part {
            Part::Unused { from, to } => {
                let size = Bytes::new(to - from);
                if !is_private && (is_unused || segment.is_expandable) {
                    let pages = (to / PAGE * PAGE)
                        .saturating_sub(from.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX));
                    self.releasable += if is_unused { size } else { Bytes::new(pages) };
                }
                self.free.push(Piece { size, stream: segment.stream, is_small, pool: segment.pool });
            }
            Part::Block { index, size } => {
                let block = &blocks[index];
                self.live += block.requested;
                self.rounding += Bytes::new(size) - block.requested;
                if block.is_pending() {
                    self.pending += block.requested;
                }
                if is_private {
                    self.private_live += block.requested;
                }
            }
        });
    }

    /// What is reserved and unused.
    pub(crate) fn cached(&self) -> Bytes {
        self.free.iter().map(|piece| piece.size).sum()
    }

    /// The unused share of all reserved memory. Memory outside the segments, of other libraries, is reserved and in use.
    pub(crate) fn unused_share(&self) -> f64 {
        self.cached().share_of(self.reserved + self.homeless)
    }

    /// The unused pieces that a request on a stream may use: same stream, same kind of segment, no private pool.
    pub(crate) fn usable_for(&self, request: Bytes, stream: StreamId) -> impl Iterator<Item = &Piece> {
        let wants_small = request.get() <= LARGEST_UNSPLIT;
        self.free.iter().filter(move |piece| {
            piece.stream == stream && piece.is_small == wants_small && piece.pool == PoolId::DEFAULT
        })
    }

    /// The largest single request that cached memory can serve.
    pub(crate) fn largest(&self) -> Bytes {
        self.free.iter().map(|piece| piece.size).max().unwrap_or(Bytes::ZERO)
    }
}
