//! Single allocations at a moment: sorted, filtered, paginated.

use std::cmp::Ordering;

use makeroom_core::{FrameId, StackId};
use makeroom_explain::{Allocation, Places};
use serde::Serialize;

use crate::input::Recording;
use crate::sites::page_number;
use crate::timeline::{Sites, Timeline};

/// Maximum number of rows in one response.
const MOST_ROWS: usize = 1000;
/// Default number of rows.
pub(crate) const USUAL_ROWS: usize = 500;

/// The sort order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Size,
    Age,
    Site,
    Address,
}

/// The requested rows.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) sort: Sort,
    pub(crate) is_descending: bool,
    pub(crate) filter: String,
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { sort: Sort::Size, is_descending: true, filter: String::new(), offset: 0, limit: USUAL_ROWS }
    }
}

/// A page of allocations, and the totals of all that match.
#[derive(Debug, Serialize)]
pub(crate) struct Listing {
    event: usize,
    total: usize,
    bytes: u64,
    offset: usize,
    rows: Vec<AllocationRow>,
}

#[derive(Debug, Serialize)]
struct AllocationRow {
    address: String,
    size: u64,
    requested: u64,
    site: i64,
    node: u32,
    from: Option<usize>,
    until: Option<usize>,
    stream: String,
    pending: bool,
}

/// The allocations that are live at a position.
pub(crate) fn rows(
    recording: &Recording,
    timeline: &Timeline,
    sites: &Sites,
    position: usize,
    wanted: &Wanted,
) -> Listing {
    let trace = &recording.trace;
    let filter = Filter::new(recording, sites, &wanted.filter);
    let mut found: Vec<Allocation> =
        timeline.live_at(trace, position).filter(|allocation| filter.matches(allocation)).collect();
    let bytes = found.iter().fold(0_u64, |sum, allocation| sum.saturating_add(allocation.requested));
    let site = |allocation: &Allocation| sites.site_of(allocation);
    found.sort_by(|one, other| {
        let order = match wanted.sort {
            Sort::Size => one.requested.cmp(&other.requested),
            Sort::Age => other.born.cmp(&one.born),
            Sort::Site => site(one).cmp(&site(other)),
            Sort::Address => Ordering::Equal,
        };
        order.then(one.address.cmp(&other.address))
    });
    if wanted.is_descending {
        found.reverse();
    }
    let trie = recording.trie();
    let row = |allocation: &Allocation| AllocationRow {
        address: format!("{:#x}", allocation.address),
        size: timeline.settings.round_size(allocation.requested),
        requested: allocation.requested,
        site: page_number(site(allocation)),
        node: trie.node(allocation.stack),
        from: allocation.born,
        until: allocation.died,
        stream: format!("{:#x}", allocation.stream.0),
        pending: allocation.is_pending(position),
    };
    let page = found.iter().skip(wanted.offset).take(wanted.limit.min(MOST_ROWS));
    Listing {
        event: position,
        total: found.len(),
        bytes,
        offset: wanted.offset,
        rows: page.map(row).collect(),
    }
}

/// A text that a row must contain: in a frame of its stack, in its site or in its address.
struct Filter<'sites> {
    sites: &'sites Sites,
    text: String,
    /// By stack; empty if everything matches.
    stacks: Vec<bool>,
    by_site: Vec<bool>,
}

impl<'sites> Filter<'sites> {
    fn new(recording: &Recording, sites: &'sites Sites, text: &str) -> Self {
        let text = text.to_lowercase();
        if text.is_empty() {
            return Self { sites, text, stacks: Vec::new(), by_site: Vec::new() };
        }
        let stacks = &recording.trace.stacks;
        let places = Places::new(&recording.trace);
        let mut frames: Vec<Option<bool>> = vec![None; stacks.frame_count()];
        let mut frame_matches = |frame: FrameId| {
            *frames[frame.index()].get_or_insert_with(|| {
                let (name, file) = places.names(frame);
                let line = stacks.frame_at(frame).line;
                format!("{file}:{line} {name}").to_lowercase().contains(&text)
            })
        };
        let mut stack_matches =
            |stack: StackId| stacks.frames_of(stack).iter().any(|&frame| frame_matches(frame));
        let by_stack = stacks.ids().map(&mut stack_matches).collect();
        let by_site = sites.list.iter().map(|site| site.name.to_lowercase().contains(&text)).collect();
        Self { sites, text, stacks: by_stack, by_site }
    }

    fn matches(&self, allocation: &Allocation) -> bool {
        self.text.is_empty()
            || self.stacks.get(allocation.stack.index()).copied().unwrap_or(false)
            || self.by_site.get(self.sites.site_of(allocation) as usize).copied().unwrap_or(false)
            || format!("{:#x}", allocation.address).contains(&self.text)
    }
}
