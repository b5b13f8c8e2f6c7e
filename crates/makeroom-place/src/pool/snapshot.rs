//! A snapshot of the pool's memory: contiguous mapped ranges, the blocks in them, and the handles behind them.

use makeroom_core::Address;

use super::lists::stream_of;
use super::policy::Policy;
use super::report::{BlockId, BlockState, BlockView, SegmentView, Snapshot};
use super::tiles::{NONE, State, TileId};

impl Policy {
    /// Takes a snapshot of the pool's memory. It walks all tiles.
    pub fn snapshot(&self) -> Snapshot {
        let mut segments: Vec<SegmentView> = Vec::new();
        for range in &self.handles.ranges {
            let mut segment: Option<SegmentView> = None;
            let mut id = range.first;
            while id != NONE {
                match self.view(id) {
                    Some(view) => segment
                        .get_or_insert_with(|| SegmentView {
                            address: view.address,
                            ..SegmentView::default()
                        })
                        .push(view),
                    None => segments.extend(segment.take()),
                }
                id = self.tiles[id].next;
            }
            segments.extend(segment);
        }
        for segment in &mut segments {
            let end = segment.address.0 + segment.size;
            let handles = self.handles.within(segment.address.0, end);
            segment.pieces = handles.map(|handle| self.handles.get(handle).piece).collect();
        }
        segments.sort_unstable_by_key(|segment| segment.address);
        let unmapped = self.handles.spare.iter().map(|&handle| self.handles.get(handle).piece).collect();
        Snapshot { segments, unmapped }
    }

    fn view(&self, id: TileId) -> Option<BlockView> {
        let tile = &self.tiles[id];
        let (block, requested) = (BlockId(id), tile.figure);
        let state = match tile.state {
            State::Live => BlockState::Live { block, requested },
            State::Pending => BlockState::Pending { block, requested },
            State::Free => BlockState::Free,
            State::Unmapped | State::Vacant => return None,
        };
        let stream = self.streams.id(stream_of(tile.list));
        Some(BlockView { address: Address(tile.address), size: tile.size, state, stream })
    }
}

impl SegmentView {
    fn push(&mut self, block: BlockView) {
        self.size += block.size;
        self.blocks.push(block);
    }
}
