//! The groups of several recordings side by side: the least, the median and the most that one of them holds, so that the
//! rank that holds more of something than the others stands out.

use makeroom_core::{Bytes, SortCompact as _, TraceKind};
use makeroom_kind::Kind;
use makeroom_ordered::OrderedMap;

use super::grouped::{By, Grouped};

/// The groups of several recordings.
#[derive(Clone, Debug)]
pub struct Across {
    /// What they are grouped by.
    pub by: By,
    /// What kind of recording the first one is.
    pub source: TraceKind,
    /// Number of recordings.
    pub recordings: usize,
    /// Whether any recording has what the groups need.
    pub is_recorded: bool,
    /// The groups, by the most that one recording holds; kinds in their own order.
    pub groups: Vec<AcrossGroup>,
}

/// One group: `least` ≤ `median` ≤ `most`. A recording without the group holds nothing of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcrossGroup {
    /// Its name; that of a kind is its ID.
    pub name: String,
    /// The least that one recording holds.
    pub least: Bytes,
    /// The median.
    pub median: Bytes,
    /// The most that one recording holds.
    pub most: Bytes,
    /// The first recording that holds the most.
    pub most_in: String,
    /// Number of recordings that have the group.
    pub recordings: usize,
}

/// Compares the groups of recordings with their names; `None` if there are none. All must be grouped the same way.
pub fn across(recordings: &[(String, Grouped)]) -> Option<Across> {
    let (_, first) = recordings.first()?;
    let mut held: OrderedMap<&str, Vec<(Bytes, &str)>> = OrderedMap::new();
    for (recording, grouped) in recordings {
        for group in &grouped.groups {
            held.entry(&group.name).or_default().push((group.bytes, recording));
        }
    }
    let mut groups: Vec<AcrossGroup> =
        held.into_iter().map(|(name, held)| group(name, held, recordings.len())).collect();
    match first.by {
        By::Kind => groups.sort_compact_by_key(|group| Kind::from_id(&group.name)),
        _ => groups.sort_compact_by_key(|group| std::cmp::Reverse(group.most)),
    }
    Some(Across {
        by: first.by,
        source: first.source,
        recordings: recordings.len(),
        is_recorded: recordings.iter().any(|(_, grouped)| grouped.is_recorded),
        groups,
    })
}

fn group(name: &str, mut held: Vec<(Bytes, &str)>, recordings: usize) -> AcrossGroup {
    // The sort keeps the order of recordings that hold the same.
    held.sort_compact_by_key(|&(bytes, _)| std::cmp::Reverse(bytes));
    // In descending order; recordings without the group follow.
    let at = |index: usize| held.get(index).map_or(Bytes::ZERO, |&(bytes, _)| bytes);
    let (most, most_in) = held.first().map_or((Bytes::ZERO, ""), |&first| first);
    AcrossGroup {
        name: name.to_owned(),
        least: at(recordings.saturating_sub(1)),
        median: at(recordings / 2),
        most,
        most_in: most_in.to_owned(),
        recordings: held.len(),
    }
}

#[cfg(test)]
mod tests {
    use makeroom_core::DeviceIndex;

    use super::super::grouped::Group;
    use super::*;

    #[test]
    fn the_recording_that_holds_most_is_named() {
        let grouped = |groups: &[(&str, u64)]| Grouped {
            by: By::Line,
            source: TraceKind::Room,
            device: DeviceIndex(0),
            is_failure: false,
            is_recorded: true,
            events: 0,
            live: groups.iter().map(|&(_, bytes)| Bytes::new(bytes)).sum(),
            growing: None,
            growth: Vec::new(),
            groups: groups
                .iter()
                .map(|&(name, bytes)| Group {
                    name: name.to_owned(),
                    bytes: Bytes::new(bytes),
                    blocks: 1,
                    kinds: Vec::new(),
                    rules: Vec::new(),
                })
                .collect(),
        };
        let recordings = [
            ("rank 0".to_owned(), grouped(&[("a.py:1", 10), ("a.py:2", 7)])),
            ("rank 1".to_owned(), grouped(&[("a.py:1", 30)])),
            ("rank 2".to_owned(), grouped(&[("a.py:1", 20)])),
        ];
        let across = across(&recordings).unwrap();
        let told: Vec<_> = across
            .groups
            .iter()
            .map(|group| {
                let bytes = [group.least, group.median, group.most].map(Bytes::get);
                (group.name.as_str(), bytes, group.most_in.as_str(), group.recordings)
            })
            .collect();
        assert_eq!(told, [("a.py:1", [10, 20, 30], "rank 1", 3), ("a.py:2", [0, 0, 7], "rank 0", 1)]);
        assert!(super::across(&[]).is_none());
    }
}
