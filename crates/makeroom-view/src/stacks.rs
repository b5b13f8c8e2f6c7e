//! All stacks of a recording as a trie, from the outermost frames inward.
//!
//! A node is kept if the stacks below it could together have held a visible share of the peak. Memory of a pruned
//! node counts for its nearest kept ancestor, so sums are exact.

use std::collections::HashMap;

use makeroom_core::{FastHasher, FastMap, FrameId, StackId, Trace};
use makeroom_explain::Places;
use serde::Serialize;

use crate::timeline::Timeline;

/// Nodes below 1/20000 of the peak are pruned.
const LEAST_SHARE: u64 = 20_000;
/// Maximum number of nodes that a browser can draw.
const MOST_NODES: usize = 60_000;
/// Number of frames to keep at each end of a stack; recursion may be arbitrarily deep.
const DEEPEST: usize = 128;

/// The stacks as a trie.
#[derive(Debug)]
pub(crate) struct Trie {
    frames: Vec<FrameRow>,
    frame_numbers: FastMap<FrameId, u32>,
    /// Parent and frame; the root is its own parent and has no frame.
    nodes: Vec<(u32, i64)>,
    of_stack: Vec<u32>,
}

/// The trie as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct TrieTable<'trie> {
    frames: &'trie [FrameRow],
    nodes: &'trie [(u32, i64)],
}

#[derive(Debug, Serialize)]
struct FrameRow {
    name: String,
    file: String,
    line: u32,
}

struct Draft {
    parent: u32,
    frame: Option<FrameId>,
    bound: u64,
}

impl Trie {
    pub(crate) fn new(trace: &Trace, devices: &[Timeline]) -> Self {
        let mut drafts = vec![Draft { parent: 0, frame: None, bound: 0 }];
        let mut children: HashMap<(u32, FrameId), u32, FastHasher> = HashMap::default();
        let mut ends: Vec<u32> = Vec::with_capacity(trace.stacks.len());
        for stack in trace.stacks.ids() {
            let bound = devices.iter().fold(0_u64, |sum, device| {
                sum.saturating_add(device.stack_peaks.get(stack.index()).copied().unwrap_or(0))
            });
            let mut node = 0_u32;
            if bound > 0 {
                for frame in outside_in(trace.stacks.frames_of(stack)) {
                    node = *children.entry((node, frame)).or_insert_with(|| {
                        drafts.push(Draft { parent: node, frame: Some(frame), bound: 0 });
                        drafts.len() as u32 - 1
                    });
                    let draft = &mut drafts[node as usize];
                    draft.bound = draft.bound.saturating_add(bound);
                }
            }
            ends.push(node);
        }
        let peak = devices.iter().map(|device| device.allocations.peak.1).max().unwrap_or(0);
        Self::pruned(trace, &drafts, &ends, peak / LEAST_SHARE)
    }

    fn pruned(trace: &Trace, drafts: &[Draft], ends: &[u32], least: u64) -> Self {
        let least = least.max(bound_for(drafts, MOST_NODES));
        let places = Places::new(trace);
        let mut trie = Self {
            frames: Vec::new(),
            frame_numbers: FastMap::default(),
            nodes: vec![(0, -1)],
            of_stack: Vec::with_capacity(ends.len()),
        };
        // The kept node of each node: itself, or its nearest kept ancestor. Parents come before their children.
        let mut kept: Vec<u32> = vec![0; drafts.len()];
        for (index, draft) in drafts.iter().enumerate().skip(1) {
            let parent = kept[draft.parent as usize];
            kept[index] = match draft.frame {
                Some(frame) if draft.bound >= least => {
                    let number = trie.number(trace, places, frame);
                    trie.nodes.push((parent, i64::from(number)));
                    trie.nodes.len() as u32 - 1
                }
                _ => parent,
            };
        }
        trie.of_stack = ends.iter().map(|&end| kept[end as usize]).collect();
        trie
    }

    fn number(&mut self, trace: &Trace, places: Places<'_>, frame: FrameId) -> u32 {
        let frames = &mut self.frames;
        *self.frame_numbers.entry(frame).or_insert_with(|| {
            let (name, file) = places.names(frame);
            frames.push(FrameRow { name, file, line: trace.stacks.frame_at(frame).line });
            frames.len() as u32 - 1
        })
    }

    /// The index of a frame in the table, if it is there.
    pub(crate) fn frame_number(&self, frame: FrameId) -> Option<u32> {
        self.frame_numbers.get(&frame).copied()
    }

    /// The node that a stack's memory counts for.
    pub(crate) fn node(&self, stack: StackId) -> u32 {
        self.of_stack.get(stack.index()).copied().unwrap_or(0)
    }

    pub(crate) fn table(&self) -> TrieTable<'_> {
        TrieTable { frames: &self.frames, nodes: &self.nodes }
    }
}

/// The smallest bound with which at most `most` nodes are kept.
fn bound_for(drafts: &[Draft], most: usize) -> u64 {
    if drafts.len() <= most {
        return 0;
    }
    let mut bounds: Vec<u64> = drafts.iter().map(|draft| draft.bound).collect();
    bounds.sort_unstable_by(|one, other| other.cmp(one));
    bounds[most].saturating_add(1)
}

/// The frames of a stack from the outermost inward, without the middle of very deep ones.
fn outside_in(frames: &[FrameId]) -> impl Iterator<Item = FrameId> {
    let inner = &frames[..frames.len().min(DEEPEST)];
    let outer = &frames[inner.len().max(frames.len().saturating_sub(DEEPEST))..];
    outer.iter().rev().chain(inner.iter().rev()).copied()
}
