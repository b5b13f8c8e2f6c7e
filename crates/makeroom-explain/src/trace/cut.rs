//! Cuts one segment into blocks with their rounding and the unused parts between.
//!
//! A recording gives requested sizes; block sizes are known only for blocks that are still there at its end. For
//! others they follow from the allocator's rules: sizes are rounded as its settings say, and in segments of large
//! blocks no unused piece of 1 MiB or less exists, because such a rest is never split off (see `ends.rs`). Blocks from
//! `max_split_size_mb` on are never split.

use makeroom_core::{Action, BlockState, Bytes, DeviceTrace, FastMap};
use makeroom_sim::Settings;

use super::ends::BlockEnds;
use super::segments::HeldSegment;
use super::state::LiveBlock;

/// The rest of a large block that is not worth splitting off.
pub(super) const LARGEST_UNSPLIT: u64 = 1 << 20;
/// The size of a segment of small blocks.
const SMALL_SEGMENT: u64 = 2 << 20;

/// A part of a segment, by addresses. Parts follow each other without gaps from its beginning to its end, unless the
/// recording is damaged and blocks overlap.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// Free memory.
    Unused {
        /// Where it begins.
        from: u64,
        /// Where it ends.
        to: u64,
    },
    /// One of the blocks.
    Block {
        /// Which one.
        index: usize,
        /// Its size, rounding included.
        size: u64,
    },
}

/// Whether a segment serves small blocks only.
pub fn is_small(segment: &HeldSegment, blocks: &[LiveBlock]) -> bool {
    if segment.is_expandable {
        blocks.iter().all(|block| block.requested.get() <= LARGEST_UNSPLIT) && !blocks.is_empty()
    } else {
        segment.size <= SMALL_SEGMENT
    }
}

/// Tells the parts of a segment in order. `blocks` are those in it, by ascending address.
pub fn cut(segment: &HeldSegment, blocks: &[LiveBlock], sizes: &BlockSizes<'_>, mut tell: impl FnMut(Part)) {
    let end = segment.address.saturating_add(segment.size);
    let is_small = is_small(segment, blocks);
    let mut cursor = segment.address;
    for (index, block) in blocks.iter().enumerate() {
        if block.address > cursor {
            tell(Part::Unused { from: cursor, to: block.address });
        }
        let next = blocks.get(index + 1).map_or(end, |next| next.address);
        let mut size = sizes.size_of(block);
        let gap = next.saturating_sub(block.address.saturating_add(size));
        let is_whole = gap <= LARGEST_UNSPLIT || size >= sizes.settings.max_split_size;
        if !is_small && !segment.is_expandable && is_whole {
            size += gap;
        }
        let size = size.min(next.saturating_sub(block.address)).max(block.requested.get());
        tell(Part::Block { index, size });
        cursor = block.address.saturating_add(size);
    }
    if end > cursor {
        tell(Part::Unused { from: cursor, to: end });
    }
}

/// What is known about the sizes of blocks, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct BlockSizes<'known> {
    /// What the end of the recording says.
    pub at_end: &'known SizesAtEnd,
    /// What the events before this moment say.
    pub ends: &'known BlockEnds,
    /// How requests are rounded.
    pub settings: &'known Settings,
    /// The number of events that have happened.
    pub position: usize,
}

impl BlockSizes<'_> {
    fn size_of(&self, block: &LiveBlock) -> u64 {
        let known = self.at_end.by_address.get(&block.address);
        match known.filter(|known| known.since <= self.position) {
            Some(known) => known.size.get(),
            None => match self.ends.end_of(block) {
                Some(end) => end - block.address,
                None => self.settings.round_size(block.requested.get()),
            },
        }
    }
}

/// The sizes of the blocks that are there at the end of a recording, each with the position since when it is that block.
#[derive(Clone, Debug, Default)]
pub struct SizesAtEnd {
    by_address: FastMap<u64, KnownSize>,
}

#[derive(Clone, Copy, Debug)]
struct KnownSize {
    size: Bytes,
    since: usize,
}

impl SizesAtEnd {
    /// Reads them for questions about positions from `from` on.
    pub fn new(device: &DeviceTrace, from: usize) -> Self {
        let blocks = device.segments.iter().flat_map(|segment| &segment.blocks);
        // The size that a free block carries is its last tenant's.
        let mut by_address: FastMap<u64, KnownSize> = blocks
            .filter(|block| block.state != BlockState::Free)
            .map(|block| (block.address.0, KnownSize { size: block.size, since: from }))
            .collect();
        for index in from..device.events.len() {
            if by_address.is_empty() {
                break;
            }
            if let Some(event) = device.events.get(index)
                && matches!(event.action, Action::FreeCompleted | Action::Alloc)
                && let Some(known) = by_address.get_mut(&event.address.0)
            {
                known.since = index + 1;
            }
        }
        Self { by_address }
    }
}
