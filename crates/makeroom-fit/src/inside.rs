//! What a framework's allocator handed out, apart from what others asked the driver for.
//!
//! A recording of a whole process has both: tensors, which lie in the framework's segments, and what cuBLAS, cuDNN or NCCL
//! take beside them. Only the former can be replayed under an allocator; with the latter among them every block comes
//! to lie elsewhere, and fragmentation is another program's.

use makeroom_core::{Action, DeviceTrace, Ranges};

/// A device's recording in two parts.
pub(crate) struct Parts {
    /// Events of segments and of what lies in them.
    pub(crate) inside: DeviceTrace,
    /// The most that was live outside of them at once.
    pub(crate) outside: u64,
}

/// Takes a recording apart; one without segments is all of the program's own.
pub(crate) fn parts(device: &DeviceTrace) -> Option<Parts> {
    let takes = |action: &Action| matches!(action, Action::SegmentAlloc | Action::SegmentMap);
    if !device.events.actions().iter().any(takes) {
        return None;
    }
    let mut inside = DeviceTrace {
        device: device.device,
        segments: device.segments.clone(),
        overflowed: device.overflowed,
        ..DeviceTrace::default()
    };
    let mut segments = Ranges::default();
    let (mut live, mut most) = (0_u64, 0);
    for (index, event) in device.events.iter().enumerate() {
        let (address, size) = (event.address.0, event.size.get());
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => segments.insert(address, size),
            Action::SegmentFree | Action::SegmentUnmap => segments.remove(address, size),
            Action::Alloc if !segments.contains(address) => {
                live = live.saturating_add(size);
                most = live.max(most);
                continue;
            }
            Action::FreeCompleted if !segments.contains(address) => {
                live = live.saturating_sub(size);
                continue;
            }
            Action::FreeRequested if !segments.contains(address) => continue,
            _ => {}
        }
        match device.events.pool(index) {
            Some(pool) => inside.events.push_in_pool(event, pool),
            None => inside.events.push(event),
        }
    }
    Some(Parts { inside, outside: most })
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Address, Bytes, Event, StackId, StreamId};

    use super::*;

    fn device(events: &[(Action, u64, u64)]) -> DeviceTrace {
        let mut device = DeviceTrace::default();
        for &(action, address, mib) in events {
            device.events.push(Event {
                action,
                address: Address(address << 20),
                size: Bytes::mib(mib),
                stream: StreamId(0),
                time_us: 0,
                stack: StackId::NONE,
            });
        }
        device
    }

    #[test]
    fn what_lies_in_no_segment_is_counted_and_left_out() {
        let parts = parts(&device(&[
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
        assert_eq!(
            parts.inside.events.actions(),
            [Action::SegmentAlloc, Action::Alloc, Action::FreeCompleted, Action::SegmentFree]
        );
    }

    #[test]
    fn a_program_that_asks_the_driver_itself_is_left_whole() {
        assert!(parts(&device(&[(Action::Alloc, 100, 8), (Action::FreeCompleted, 100, 8)])).is_none());
    }
}
