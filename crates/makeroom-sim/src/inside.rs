//! Separates the allocations of a framework's allocator from direct driver allocations.
//!
//! A recording of a whole process contains both: tensors, which are inside the framework's segments, and memory that
//! cuBLAS, cuDNN or NCCL allocate from the driver. Only the former can be replayed under an allocator. If the latter
//! were included, every block would move, and the fragmentation would not be that of the program.

use makeroom_core::{Action, DeviceTrace, Ranges};

/// The contents of a framework's segments, from a recording of a whole process.
#[derive(Clone, Debug)]
pub struct Inside {
    /// Events of segments and of blocks inside them.
    pub device: DeviceTrace,
    /// The position of each in the whole recording.
    pub positions: Vec<usize>,
    /// Peak live memory outside of segments.
    pub outside: u64,
}

impl Inside {
    /// Splits a recording. `None` if there is nothing to separate: all memory belongs to the program itself, or the
    /// recording is a framework's own snapshot, which contains nothing else.
    pub fn new(device: &DeviceTrace) -> Option<Self> {
        let takes = |action: &Action| matches!(action, Action::SegmentAlloc | Action::SegmentMap);
        if !device.segments.is_empty() || !device.events.actions().iter().any(takes) {
            return None;
        }
        let inside =
            DeviceTrace { device: device.device, overflowed: device.overflowed, ..DeviceTrace::default() };
        let mut parts = Self { device: inside, positions: Vec::new(), outside: 0 };
        let mut segments = Ranges::default();
        let mut live = 0_u64;
        for (index, event) in device.events.iter().enumerate() {
            let (address, size) = (event.address.0, event.size.get());
            match event.action {
                Action::SegmentAlloc | Action::SegmentMap => segments.insert(address, size),
                Action::SegmentFree | Action::SegmentUnmap => segments.remove(address, size),
                Action::Alloc if !segments.contains(address) => {
                    live = live.saturating_add(size);
                    parts.outside = live.max(parts.outside);
                    continue;
                }
                Action::FreeCompleted if !segments.contains(address) => {
                    live = live.saturating_sub(size);
                    continue;
                }
                Action::FreeRequested if !segments.contains(address) => continue,
                _ => {}
            }
            parts.positions.push(index);
            match device.events.pool(index) {
                Some(pool) => parts.device.events.push_in_pool(event, pool),
                None => parts.device.events.push(event),
            }
        }
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use makeroom_core::Event;

    use super::*;

    fn device(events: &[(Action, u64, u64)]) -> DeviceTrace {
        let mut device = DeviceTrace::default();
        for &(action, address, mib) in events {
            device.events.push(Event::new(action, address << 20, mib << 20));
        }
        device
    }

    #[test]
    fn what_lies_in_no_segment_is_counted_and_left_out() {
        let parts = Inside::new(&device(&[
            (Action::SegmentAlloc, 100, 20),
            (Action::Alloc, 100, 8),
            (Action::Alloc, 500, 32),
            (Action::FreeCompleted, 0, 0),
            (Action::Alloc, 700, 16),
            (Action::FreeCompleted, 500, 32),
            (Action::FreeCompleted, 100, 8),
            (Action::SegmentFree, 100, 20),
            (Action::Alloc, 100, 4),
        ]))
        .unwrap();
        assert_eq!(parts.outside, 48 << 20);
        assert_eq!(parts.positions, [0, 1, 6, 7]);
        assert_eq!(
            parts.device.events.actions(),
            [Action::SegmentAlloc, Action::Alloc, Action::FreeCompleted, Action::SegmentFree]
        );
    }

    #[test]
    fn a_program_that_asks_the_driver_itself_is_left_whole() {
        let own = device(&[(Action::Alloc, 100, 8), (Action::FreeCompleted, 100, 8)]);
        assert!(Inside::new(&own).is_none());
    }
}
