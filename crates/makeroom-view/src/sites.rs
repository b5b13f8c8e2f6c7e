//! The table of sites as JSON.

use serde::Serialize;

use crate::input::Recording;
use crate::timeline::{MOST_SITES, Site, Sites, Timeline};

/// All sites of a device.
#[derive(Debug, Serialize)]
pub(crate) struct SiteTable<'names> {
    sites: Vec<SiteRow<'names>>,
    /// Number of sites that are left out.
    other_sites: usize,
    /// Live memory of all sites at the position of interest.
    live_at_start: u64,
}

#[derive(Debug, Serialize)]
struct SiteRow<'names> {
    id: usize,
    name: &'names str,
    own: bool,
    frame: Option<u32>,
    unknown: bool,
    color: usize,
    peak: u64,
    live_at_peak: u64,
    live_at_start: u64,
    live_at_end: u64,
    allocated: u64,
    count: u64,
}

/// The sites of a device that ever allocated anything.
pub(crate) fn sites<'sites>(
    recording: &Recording,
    timeline: &Timeline,
    all: &'sites Sites,
) -> SiteTable<'sites> {
    let trie = recording.trie();
    let mut live_at_start = vec![0_u64; all.list.len()];
    for allocation in timeline.live_at(&recording.trace, timeline.interest()) {
        if let Some(live) = live_at_start.get_mut(all.site_of(&allocation) as usize) {
            *live = live.saturating_add(allocation.requested);
        }
    }
    let is_used = |(_, site): &(usize, &Site)| site.count > 0;
    let used = || all.list.iter().enumerate().filter(is_used);
    let row = |(id, site): (usize, &'sites Site)| SiteRow {
        id,
        name: &site.name,
        own: site.is_own,
        frame: site.frame.and_then(|frame| trie.frame_number(frame)),
        unknown: site.is_unknown,
        color: all.layer(id as u32),
        peak: site.peak,
        live_at_peak: site.live_at_peak,
        live_at_start: live_at_start.get(id).copied().unwrap_or(0),
        live_at_end: site.live_at_end,
        allocated: site.allocated,
        count: site.count,
    };
    let sites: Vec<SiteRow<'_>> = used().take_while(|(id, _)| *id < MOST_SITES).map(row).collect();
    let total = live_at_start.iter().fold(0_u64, |sum, &live| sum.saturating_add(live));
    SiteTable { other_sites: used().count() - sites.len(), sites, live_at_start: total }
}

/// The index of a site on the page; -1 if the page does not have it.
pub(crate) fn page_number(site: u32) -> i64 {
    if (site as usize) < MOST_SITES { i64::from(site) } else { -1 }
}
