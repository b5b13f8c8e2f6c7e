//! Sites that the stack of an allocation does not determine: groups of `makeroom why --by`, ranges of sizes, and single
//! allocations.
//!
//! Kinds number allocations as a history does: first those older than the recording, by address, then in order of
//! allocation.

use std::cmp::Reverse;
use std::collections::HashMap;

use makeroom_core::{Bytes, Trace};
use makeroom_explain::{By as Group, GroupNames, Places};
use makeroom_kind::Kinds;
use makeroom_report::kind_words;

use super::Timeline;
use super::sites::{OWN_LAYERS, Sites};

/// The smallest size that is not in the first range. Each range ends at four times its start.
const FIRST_SIZE: u64 = 4 << 10;
/// Number of ranges.
const SIZES: u32 = 13;

/// Sites of a group.
pub(super) fn groups(trace: &Trace, timeline: &Timeline, kinds: &Kinds, by: Group) -> Sites {
    let mut group_names = GroupNames::new(trace, timeline.device(trace), by);
    let mut number_of: HashMap<(String, bool), u32> = HashMap::new();
    let mut names = Vec::new();
    let of_allocation = kinds
        .allocations()
        .iter()
        .map(|allocation| {
            let was_recorded = group_names.find(allocation);
            let is_unknown = was_recorded.is_none();
            let name = was_recorded.unwrap_or_else(|| group_names.name(allocation));
            let found = *number_of.entry((name, is_unknown)).or_insert_with_key(|(name, _)| {
                let title = if by == Group::Kind { kind_words(name) } else { name };
                names.push((title.to_owned(), is_unknown));
                names.len() as u32 - 1
            });
            Some(found)
        })
        .collect();
    Sites::assigned(names, of_allocation)
}

/// Ranges of sizes.
pub(super) fn sizes(trace: &Trace, timeline: &Timeline) -> Sites {
    let names = (0..SIZES).map(|range| (size_range(range), false)).collect();
    let device = timeline.device(trace);
    let of_allocation = (0..timeline.allocations.len() as u32).map(|number| {
        let size = timeline.allocations.size_of(number, device, &timeline.start);
        Some(range_of(size))
    });
    Sites::assigned(names, of_allocation.collect())
}

fn range_of(size: u64) -> u32 {
    (0..SIZES - 1).find(|&range| size < FIRST_SIZE << (2 * range)).unwrap_or(SIZES - 1)
}

fn size_range(range: u32) -> String {
    // Powers of two, so the decimals are zero.
    let bound = |range: u32| Bytes::new(FIRST_SIZE << (2 * range)).to_string().replace(".00 ", " ");
    match range {
        0 => format!("under {}", bound(0)),
        last if last == SIZES - 1 => format!("{} or more", bound(last - 1)),
        _ => format!("{} to {}", bound(range - 1), bound(range)),
    }
}

/// The largest allocations at the failure or the peak, one site each.
pub(super) fn allocations(trace: &Trace, timeline: &Timeline) -> Sites {
    let mut largest: Vec<_> = timeline.live_at(trace, timeline.interest()).collect();
    largest.sort_by_key(|allocation| (Reverse(allocation.requested), allocation.number));
    largest.truncate(OWN_LAYERS);
    let mut of_allocation = vec![None; timeline.allocations.len()];
    let places = Places::new(trace);
    let mut names = Vec::new();
    for allocation in largest {
        let since = match allocation.born {
            Some(born) => format!("event {born}"),
            None => format!("{:#x}", allocation.address),
        };
        let place = places
            .site(allocation.stack)
            .map_or(String::new(), |(frame, _)| format!("{}, ", places.describe(frame)));
        of_allocation[allocation.number as usize] = Some(names.len() as u32);
        names.push((format!("{place}{since}"), false));
    }
    Sites::assigned(names, of_allocation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_sizes_have_no_gaps() {
        for range in 0..SIZES - 1 {
            let end = FIRST_SIZE << (2 * range);
            assert_eq!((range_of(end - 1), range_of(end)), (range, range + 1));
        }
        assert_eq!((range_of(0), range_of(u64::MAX)), (0, SIZES - 1));
        let names = [0, 1, SIZES - 1].map(size_range);
        assert_eq!(names, ["under 4 KiB", "4 KiB to 16 KiB", "16 GiB or more"]);
    }
}
