//! Live memory at a moment, by node of the trie and by site.

use std::collections::HashMap;

use makeroom_core::{FastHasher, SortCompact as _};
use serde::Serialize;

use crate::input::Recording;
use crate::sites::page_number;
use crate::timeline::{Sites, Timeline};

/// Live memory at a moment: Σ bytes = total.
#[derive(Debug, Serialize)]
pub(crate) struct Live {
    event: usize,
    total: u64,
    /// Node, bytes that belong to it and not to its children, number of blocks, and their site; a node has a row for each
    /// of its sites.
    nodes: Vec<(u32, u64, u64, i64)>,
}

/// Live memory at a position.
pub(crate) fn live(recording: &Recording, timeline: &Timeline, sites: &Sites, position: usize) -> Live {
    let trie = recording.trie();
    let mut held: HashMap<(u32, i64), (u64, u64), FastHasher> = HashMap::default();
    let mut total = 0_u64;
    for allocation in timeline.live_at(&recording.trace, position) {
        let (bytes, blocks) =
            held.entry((trie.node(allocation.stack), page_number(sites.site_of(&allocation)))).or_default();
        *bytes = bytes.saturating_add(allocation.requested);
        *blocks += 1;
        total = total.saturating_add(allocation.requested);
    }
    let node = |((node, site), (bytes, blocks))| (node, bytes, blocks, site);
    let mut nodes: Vec<(u32, u64, u64, i64)> = held.into_iter().map(node).collect();
    nodes.sort_compact_by_key(|&(node, _, _, site)| (node, site));
    Live { event: position, total, nodes }
}
