//! Live memory at a moment, by node of the trie.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::input::Recording;
use crate::timeline::Timeline;

/// Live memory at a moment: Σ bytes = total.
#[derive(Debug, Serialize)]
pub(crate) struct Live {
    event: usize,
    total: u64,
    /// Node, bytes that belong to it and not to its children, and number of blocks.
    nodes: Vec<(u32, u64, u64)>,
}

/// Live memory at a position.
pub(crate) fn live(recording: &Recording, timeline: &Timeline, position: usize) -> Live {
    let trie = recording.trie();
    let mut held: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut total = 0_u64;
    for allocation in timeline.live_at(&recording.trace, position) {
        let (bytes, blocks) = held.entry(trie.node(allocation.stack)).or_default();
        *bytes = bytes.saturating_add(allocation.requested);
        *blocks += 1;
        total = total.saturating_add(allocation.requested);
    }
    let nodes = held.into_iter().map(|(node, (bytes, blocks))| (node, bytes, blocks)).collect();
    Live { event: position, total, nodes }
}
