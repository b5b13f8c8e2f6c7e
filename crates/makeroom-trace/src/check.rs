//! Checks a trace after import: sorts segments and blocks, and notes inconsistencies.
//!
//! An inconsistent snapshot is still worth reading, so nothing here is an error. Each kind of problem is one note per
//! device, with a count and the first case.

use makeroom_core::{DeviceTrace, Segment, SortCompact as _, Trace};

/// Maximum number of notes; a file may name fifty thousand devices.
const MOST_NOTES: usize = 10;

/// Sorts segments and blocks by address and notes gaps and overlaps.
pub(crate) fn check(trace: &mut Trace) {
    for device in &mut trace.devices {
        device.segments.sort_compact_by_key(|segment| segment.address);
        for segment in &mut device.segments {
            segment.blocks.sort_by_key(|block| block.address);
        }
        let notes = [overlaps(device), gaps(device)];
        trace.notes.extend(notes.into_iter().flatten());
    }
    let further = trace.notes.len().saturating_sub(MOST_NOTES);
    if further > 0 {
        trace.notes.truncate(MOST_NOTES);
        trace.notes.push(format!("and {further} more notes like these"));
    }
}

fn overlaps(device: &DeviceTrace) -> Option<String> {
    let is_overlap = |pair: &&[Segment]| {
        pair[0].address.0.checked_add(pair[0].size.get()).is_none_or(|end| end > pair[1].address.0)
    };
    let mut overlapping = device.segments.windows(2).filter(is_overlap);
    let first = overlapping.next()?;
    Some(format!(
        "device {}: segments that overlap the next one: {}, the first at {}",
        device.device,
        overlapping.count() + 1,
        first[0].address
    ))
}

fn gaps(device: &DeviceTrace) -> Option<String> {
    let mut untiled = device.segments.iter().filter(|segment| !is_tiled(segment));
    let first = untiled.next()?;
    let covered = first.blocks.iter().map(|block| block.size).sum::<makeroom_core::Bytes>();
    Some(format!(
        "device {}: segments not filled exactly by their blocks: {}; the first, at {}, has {} of blocks in {}",
        device.device,
        untiled.count() + 1,
        first.address,
        covered,
        first.size
    ))
}

/// Whether the blocks cover the segment without gaps or overlaps.
fn is_tiled(segment: &Segment) -> bool {
    let mut next = segment.address.0;
    for block in &segment.blocks {
        if block.address.0 != next {
            return false;
        }
        next = next.wrapping_add(block.size.get());
    }
    next == segment.address.0.wrapping_add(segment.size.get())
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Address, Block, Bytes, TraceKind};

    use super::*;

    fn segment(address: u64, size: u64, blocks: &[(u64, u64)]) -> Segment {
        let block = |&(address, size): &(u64, u64)| Block {
            address: Address(address),
            size: Bytes::new(size),
            ..Block::default()
        };
        Segment {
            address: Address(address),
            size: Bytes::new(size),
            blocks: blocks.iter().map(block).collect(),
            ..Segment::default()
        }
    }

    fn checked(segments: Vec<Segment>) -> Trace {
        let mut trace = Trace::new(TraceKind::TorchSnapshot);
        trace.devices.push(DeviceTrace { segments, ..DeviceTrace::default() });
        check(&mut trace);
        trace
    }

    #[test]
    fn a_sound_trace_is_put_in_order_without_a_note() {
        let trace = checked(vec![segment(40, 10, &[(46, 4), (40, 6)]), segment(10, 20, &[(10, 20)])]);
        assert!(trace.notes.is_empty(), "{:?}", trace.notes);
        assert_eq!(trace.devices[0].segments[0].address, Address(10));
        assert_eq!(trace.devices[0].segments[1].blocks[0].address, Address(40));
    }

    #[test]
    fn many_devices_in_trouble_make_a_few_notes() {
        let mut trace = Trace::new(TraceKind::TorchSnapshot);
        let device = DeviceTrace { segments: vec![segment(10, 20, &[(10, 19)])], ..DeviceTrace::default() };
        trace.devices = vec![device; 1000];
        check(&mut trace);
        assert_eq!(trace.notes.len(), 11);
        assert_eq!(trace.notes[10], "and 990 more notes like these");
    }

    #[test]
    fn gaps_and_overlaps_are_noted_once_each() {
        let trace =
            checked(vec![segment(10, 20, &[(10, 19)]), segment(20, 5, &[]), segment(u64::MAX, 9, &[])]);
        assert_eq!(
            trace.notes,
            [
                "device 0: segments that overlap the next one: 1, the first at 0xa",
                "device 0: segments not filled exactly by their blocks: 3; the first, at 0xa, has 19 B of blocks in 20 B",
            ]
        );
    }
}
