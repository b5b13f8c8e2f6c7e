//! The failed allocation that limits a run: the moment that `why --by` and `diff` show.

use makeroom_core::{Action, Bytes, DeviceTrace};
use makeroom_kind::Kinds;

use super::grouped::Grouped;

impl Grouped {
    /// The first failed request that the run did not get past: it never held the live memory of that moment and the request
    /// together afterwards. Returns the number of events before it, and its size.
    pub fn failure(device: &DeviceTrace, kinds: &Kinds) -> Option<(usize, Bytes)> {
        let is_failure = |&action: &Action| action == Action::OutOfMemory;
        if !device.events.actions().iter().any(is_failure) {
            return None;
        }
        // Live memory changes after `position` events.
        let mut changes: Vec<(usize, i128)> = Vec::new();
        for allocation in kinds.allocations() {
            let size = i128::from(allocation.size.get());
            changes.push((allocation.born().map_or(0, |born| born + 1), size));
            changes.extend(allocation.freed().map(|freed| (freed + 1, -size)));
        }
        changes.sort_unstable_by_key(|&(position, _)| position);
        let mut changes = changes.into_iter().peekable();
        let mut live = 0_i128;
        let mut open: Option<(usize, Bytes, i128)> = None;
        for (index, event) in device.events.iter().enumerate() {
            while let Some((_, size)) = changes.next_if(|&(position, _)| position <= index) {
                live += size;
            }
            if open.is_some_and(|(_, _, need)| live >= need) {
                open = None;
            }
            if open.is_none() && is_failure(&event.action) {
                open = Some((index, event.size, live + i128::from(event.size.get())));
            }
        }
        live += changes.map(|(_, size)| size).sum::<i128>();
        open.filter(|&(_, _, need)| live < need).map(|(index, request, _)| (index, request))
    }
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Event, Trace, TraceKind};

    use super::super::grouped::{By, grouped};
    use super::*;

    /// The live memory that `why --by` shows, and the request that limits the run.
    fn shown(events: &[(Action, u64, u64)]) -> (u64, Option<u64>) {
        let mut device = DeviceTrace::default();
        for &(action, address, size) in events {
            device.events.push(Event::new(action, address, size));
        }
        let mut trace = Trace::new(TraceKind::TorchSnapshot);
        let failure = Grouped::failure(&device, &Kinds::new(&trace, &device));
        trace.devices.push(device);
        let grouped = grouped(&trace, None, By::Kind).unwrap();
        assert_eq!(grouped.is_failure, failure.is_some());
        assert!(failure.is_none_or(|(index, _)| index == grouped.events));
        (grouped.live.get(), failure.map(|(_, request)| request.get()))
    }

    #[test]
    fn a_run_that_failed_is_shown_at_the_failure_that_limits_it() {
        use Action::{Alloc, FreeCompleted, OutOfMemory};
        // The peak was earlier, but the run failed here.
        let failed =
            [(Alloc, 512, 1000), (Alloc, 2048, 500), (FreeCompleted, 2048, 500), (OutOfMemory, 0, 800)];
        assert_eq!(shown(&failed), (1000, Some(800)));
        // Of two failures, the first one.
        let twice = [&failed[..], &[(FreeCompleted, 512, 1000), (OutOfMemory, 0, 1700)]].concat();
        assert_eq!(shown(&twice), (1000, Some(800)));
        // The program caught the failure and held as much later, even in its last event; then it failed again.
        let caught = [&failed[..], &[(Alloc, 4096, 800)]].concat();
        assert_eq!(shown(&caught), (1800, None));
        let again = [&caught[..], &[(OutOfMemory, 0, 300)]].concat();
        assert_eq!(shown(&again), (1800, Some(300)));
        // It continued with less.
        let less = [&failed[..], &[(Alloc, 4096, 700)]].concat();
        assert_eq!(shown(&less), (1000, Some(800)));
        assert_eq!(shown(&[]), (0, None));
    }
}
