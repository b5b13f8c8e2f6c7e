//! Cuts reserved memory into what is live, what rounding took, and the unused pieces between.
//!
//! ```text
//! reserved = live + rounding + cached        cached = Σ pieces
//! ```
//!
//! A recording gives requested sizes; block sizes are known only for blocks that are still there at its end. For
//! others the allocator's rules tell nearly all: sizes are rounded as its settings say, and in segments of large
//! blocks no unused piece of 1 MiB or less exists, because such a rest is never split off.

use makeroom_core::{Action, BlockState, Bytes, DeviceTrace, FastMap, PoolId, StreamId};
use makeroom_sim::Settings;

use super::state::{HeldSegment, LiveBlock, State};

/// The rest of a large block that is not worth splitting off.
const LARGEST_UNSPLIT: u64 = 1 << 20;
/// What segments that grow are made of.
const PAGE: u64 = 2 << 20;
/// The size of a segment of small blocks.
const SMALL_SEGMENT: u64 = 2 << 20;

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
    /// Cuts up the state after the event `moment`; `None` is before the first.
    pub(crate) fn new(
        device: &DeviceTrace,
        settings: &Settings,
        state: &State,
        moment: Option<usize>,
    ) -> Self {
        let known = Known { sizes: sizes_at_end(device, moment), settings };
        let mut pieces = Self::default();
        let mut rest = state.blocks.as_slice();
        for segment in &state.segments {
            let before = rest.partition_point(|block| block.address < segment.address);
            pieces.homeless += rest[..before].iter().map(|block| block.requested).sum();
            rest = &rest[before..];
            let end = segment.address.saturating_add(segment.size);
            let inside = rest.partition_point(|block| block.address < end);
            pieces.cut(segment, &rest[..inside], &known);
            rest = &rest[inside..];
        }
        pieces.homeless += rest.iter().map(|block| block.requested).sum();
        pieces
    }

    fn cut(&mut self, segment: &HeldSegment, blocks: &[LiveBlock], known: &Known<'_>) {
        let end = segment.address.saturating_add(segment.size);
        let is_small = if segment.is_expandable {
            blocks.iter().all(|block| block.requested.get() <= LARGEST_UNSPLIT) && !blocks.is_empty()
        } else {
            segment.size <= SMALL_SEGMENT
        };
        let is_private = segment.pool != PoolId::DEFAULT;
        self.reserved += Bytes::new(segment.size);
        if is_private {
            self.private_reserved += Bytes::new(segment.size);
        }
        let is_unused = blocks.is_empty();
        let releasable = &mut self.releasable;
        let mut piece = |from: u64, to: u64| {
            if to > from {
                let size = Bytes::new(to - from);
                if !is_private && (is_unused || segment.is_expandable) {
                    let pages = (to / PAGE * PAGE).saturating_sub(from.next_multiple_of(PAGE));
                    *releasable += if is_unused { size } else { Bytes::new(pages) };
                }
                self.free.push(Piece { size, stream: segment.stream, is_small, pool: segment.pool });
            }
        };
        let mut cursor = segment.address;
        for (index, block) in blocks.iter().enumerate() {
            piece(cursor, block.address);
            let next = blocks.get(index + 1).map_or(end, |next| next.address);
            let mut size = known.size_of(block);
            let gap = next.saturating_sub(block.address.saturating_add(size));
            if !is_small && !segment.is_expandable && gap <= LARGEST_UNSPLIT {
                size += gap;
            }
            let size = size.min(next.saturating_sub(block.address)).max(block.requested.get());
            self.live += block.requested;
            self.rounding += Bytes::new(size) - block.requested;
            if block.is_pending {
                self.pending += block.requested;
            }
            if is_private {
                self.private_live += block.requested;
            }
            cursor = block.address.saturating_add(size);
        }
        piece(cursor, end);
    }

    /// What is reserved and unused.
    pub(crate) fn cached(&self) -> Bytes {
        self.free.iter().map(|piece| piece.size).sum()
    }

    /// The unused share of what is reserved.
    pub(crate) fn slack(&self) -> f64 {
        self.cached().share_of(self.reserved)
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

/// What is known about the sizes of blocks.
struct Known<'settings> {
    sizes: FastMap<u64, Bytes>,
    settings: &'settings Settings,
}

impl Known<'_> {
    fn size_of(&self, block: &LiveBlock) -> u64 {
        self.sizes
            .get(&block.address)
            .map_or_else(|| self.settings.round_size(block.requested.get()), |size| size.get())
    }
}

/// The sizes of blocks that are there from a moment to the end, by address.
fn sizes_at_end(device: &DeviceTrace, moment: Option<usize>) -> FastMap<u64, Bytes> {
    let blocks = device.segments.iter().flat_map(|segment| &segment.blocks);
    // The size that a free block carries is its last tenant's.
    let mut sizes: FastMap<u64, Bytes> = blocks
        .filter(|block| block.state != BlockState::Free)
        .map(|block| (block.address.0, block.size))
        .collect();
    for index in moment.map_or(0, |moment| moment + 1)..device.events.len() {
        if let Some(event) = device.events.get(index)
            && matches!(event.action, Action::FreeCompleted | Action::Alloc)
        {
            sizes.remove(&event.address.0);
        }
    }
    sizes
}
