//! A tile of the series as JSON.

use makeroom_core::Trace;
use serde::Serialize;

use crate::timeline::{By, NOT_IN_HISTORY, OLDER_LAYER, OTHER_LAYER, TILE, Timeline, width};

/// One tile.
#[derive(Debug, Serialize)]
pub(crate) struct Drawing<'names> {
    level: u32,
    tile: usize,
    first_event: usize,
    bucket_events: usize,
    event: Vec<u32>,
    time: Vec<Option<u64>>,
    live: Vec<u64>,
    reserved: Vec<u64>,
    most_reserved: Vec<u64>,
    low: Vec<u64>,
    layers: Vec<Layer<'names>>,
}

/// The memory of one site in each bucket.
#[derive(Debug, Serialize)]
struct Layer<'names> {
    site: Option<usize>,
    name: &'names str,
    live: Vec<u64>,
}

/// A tile of a device's series; `None` if it does not exist.
pub(crate) fn tile<'timeline>(
    trace: &'timeline Trace,
    timeline: &'timeline Timeline,
    by: By,
    level: u32,
    tile: usize,
) -> Option<Drawing<'timeline>> {
    let grouping = timeline.grouping(trace, by);
    let sites = &grouping.sites;
    let buckets = grouping.series.tile(trace, timeline, sites, level, tile)?;
    let layer = |site: Option<usize>, name: &'timeline str, column: usize| Layer {
        site,
        name,
        live: buckets.iter().map(|bucket| bucket.highest.layers[column]).collect(),
    };
    let mut layers: Vec<Layer<'_>> = sites
        .with_layers()
        .map(|(number, site)| layer(Some(number), &site.name, sites.layer(number as u32)))
        .collect();
    layers.push(layer(None, "other", OTHER_LAYER));
    layers.push(layer(None, NOT_IN_HISTORY, OLDER_LAYER));
    Some(Drawing {
        level,
        tile,
        first_event: tile * TILE * width(level),
        bucket_events: width(level),
        event: buckets.iter().map(|bucket| bucket.highest.position).collect(),
        time: buckets
            .iter()
            .map(|bucket| timeline.time_since_start(trace, bucket.highest.position as usize))
            .collect(),
        live: buckets.iter().map(|bucket| bucket.highest.live).collect(),
        reserved: buckets.iter().map(|bucket| bucket.highest.reserved).collect(),
        most_reserved: buckets.iter().map(|bucket| bucket.most_reserved).collect(),
        low: buckets.iter().map(|bucket| bucket.low).collect(),
        layers,
    })
}
