//! Whether a recording contains the segment events that a check compares with.
//!
//! `torch.cuda.memory._record_memory_history(skip_actions=…)` can leave them out, and other tools that write or filter
//! snapshots do. The model then starts from a wrong state, and its predictions say nothing about the allocator. A recording
//! that started late or lost its oldest events is not meant: its state at the start is known.

use makeroom_core::{Action, DeviceTrace, Ranges, Start};

/// Whether segment events are missing: there are none that allocate memory, or they contradict the other events or the
/// segments at the end. Call this only if predictions are wrong. Without them a recording can also be complete: all
/// memory was reserved before it began.
pub(super) fn lacks_segment_events(device: &DeviceTrace, start: &Start) -> bool {
    let mut has_take = false;
    let mut reserved = Ranges::default();
    for segment in &start.segments {
        reserved.insert(segment.address.0, segment.size.get());
    }
    for event in device.events.iter() {
        let (address, size) = (event.address.0, event.size.get());
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                has_take = true;
                // Memory is not allocated twice: a release is missing.
                if overlaps(&reserved, address, size) {
                    return true;
                }
                reserved.insert(address, size);
            }
            Action::SegmentFree | Action::SegmentUnmap => reserved.remove(address, size),
            // Blocks are in segments: an allocation is missing.
            Action::Alloc if !reserved.contains(address) => return true,
            _ => {}
        }
    }
    // Memory that is not there at the end was released, if the end is recorded at all.
    for segment in &device.segments {
        reserved.remove(segment.address.0, segment.size.get());
    }
    !has_take || (!device.segments.is_empty() && reserved.iter().next().is_some())
}

fn overlaps(reserved: &Ranges, address: u64, size: u64) -> bool {
    let end = address.saturating_add(size);
    reserved.contains(address) || reserved.first_from(address).is_some_and(|start| start < end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::recording;

    fn lacks(events: &[(Action, u64, u64)]) -> bool {
        let device = recording(events);
        lacks_segment_events(&device, &Start::new(&device))
    }

    #[test]
    fn complete_events_lack_nothing() {
        assert!(!lacks(&[
            (Action::SegmentAlloc, 0, 20),
            (Action::Alloc, 0, 8),
            (Action::FreeRequested, 0, 8),
            (Action::FreeCompleted, 0, 8),
            (Action::SegmentFree, 0, 20),
            (Action::SegmentAlloc, 0, 24),
            (Action::Alloc, 0, 24),
        ]));
    }

    #[test]
    fn missing_allocations_and_releases_are_found() {
        // Nothing is ever reserved.
        assert!(lacks(&[(Action::Alloc, 0, 8)]));
        // The second block is in no segment.
        assert!(lacks(&[(Action::SegmentAlloc, 0, 20), (Action::Alloc, 0, 20), (Action::Alloc, 100, 20)]));
        // The same memory is reserved twice.
        assert!(lacks(&[(Action::SegmentAlloc, 4, 20), (Action::SegmentAlloc, 0, 8)]));
    }
}
