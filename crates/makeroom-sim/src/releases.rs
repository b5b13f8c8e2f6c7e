//! Whether the program released memory to the driver (`torch.cuda.empty_cache()`) or the allocator did.
//!
//! The allocator releases memory itself when the driver or the limit is out of memory, and to collect garbage; then new
//! memory or a failure follows. With Python stacks, the call is in the stack. Without, two rules decide:
//!
//! - `empty_cache` frees every unused segment, large ones first, each kind by stream, size and address. A run that leaves
//!   one or has another order is the allocator's.
//! - A run is also the allocator's if reserved memory was about to exceed its highest mark, which only a failure explains.
//!
//! Any other run is attributed to the program; the allocator would have released the same.

use std::collections::BTreeMap;

use makeroom_core::{Action, DeviceTrace, Event, PoolId, StackId, Stacks, Start};

use crate::segment_lifetimes::SegmentLifetimes;

/// Segments of this size contain small blocks.
const SMALL_SEGMENT: u64 = 2 << 20;

/// The first events of runs of releases that the program itself requested.
pub(crate) fn empty_cache_calls(
    device: &DeviceTrace,
    stacks: &Stacks,
    start: &Start,
    lifetimes: &SegmentLifetimes,
) -> Vec<u32> {
    let events = &device.events;
    let peak = peak_reserved(device);
    let mut calls = Vec::new();
    let mut reserved = 0_i128;
    let mut usage = Usage::new(start, lifetimes);
    let mut index = 0;
    while let Some(event) = events.get(index) {
        if !is_release(event.action) {
            if is_take(event.action) {
                reserved += i128::from(event.size.get());
            }
            usage.see(index, &event, lifetimes);
            index += 1;
            continue;
        }
        let first = index;
        let before = reserved;
        let mut run = Vec::new();
        // The allocator synchronizes the device in the middle of a release, so completed frees are in between.
        while let Some(released) = events
            .get(index)
            .filter(|event| is_release(event.action) || event.action == Action::FreeCompleted)
        {
            if is_release(released.action) {
                reserved -= i128::from(released.size.get());
                run.push((index, released));
            }
            usage.see(index, &released, lifetimes);
            index += 1;
        }
        let next = events.get(index);
        let is_named = names_empty_cache(stacks, event.stack);
        let is_allocators = match next {
            Some(next) if next.action == Action::OutOfMemory => true,
            Some(next) if is_take(next.action) => {
                before + i128::from(next.size.get()) > peak
                    || usage.has_unused()
                    || !is_sorted(&run, lifetimes)
            }
            _ => false,
        };
        if is_named || (!is_allocators && stacks.frames_of(event.stack).is_empty()) || !follows(next) {
            calls.push(first as u32);
        }
    }
    calls
}

fn peak_reserved(device: &DeviceTrace) -> i128 {
    let mut reserved = 0_i128;
    let mut peak = 0_i128;
    for event in device.events.iter() {
        let size = i128::from(event.size.get());
        if is_take(event.action) {
            reserved += size;
        } else if is_release(event.action) {
            reserved -= size;
        }
        peak = peak.max(reserved);
    }
    peak
}

/// The segments of the default pool, and the number of live blocks in each. Expandable segments are excluded: only
/// their whole pages are released, never the segment.
struct Usage {
    /// End and number of blocks by start address.
    segments: BTreeMap<u64, (u64, usize)>,
    /// The number of segments without blocks in use.
    unused: usize,
}

impl Usage {
    fn new(start: &Start, lifetimes: &SegmentLifetimes) -> Self {
        let mut usage = Self { segments: BTreeMap::new(), unused: 0 };
        let expandable = |address| {
            let index = start.segments.partition_point(|segment| segment.address.0 <= address);
            index.checked_sub(1).is_some_and(|index| start.segments[index].is_expandable)
        };
        for lifetime in lifetimes
            .older()
            .filter(|lifetime| lifetime.pool == PoolId::DEFAULT && !expandable(lifetime.start))
        {
            usage.add(lifetime.start, lifetime.end);
        }
        for block in &start.blocks {
            usage.change(block.address.0, true);
        }
        usage
    }

    fn add(&mut self, start: u64, end: u64) {
        if self.segments.insert(start, (end, 0)).is_none_or(|(_, blocks)| blocks > 0) {
            self.unused += 1;
        }
    }

    fn see(&mut self, index: usize, event: &Event, lifetimes: &SegmentLifetimes) {
        let address = event.address.0;
        match event.action {
            Action::SegmentAlloc
                if lifetimes.turn(index).is_none_or(|lifetime| lifetime.pool == PoolId::DEFAULT) =>
            {
                self.add(address, address.saturating_add(event.size.get()));
            }
            Action::SegmentFree => {
                if let Some((_, blocks)) = self.segments.remove(&address) {
                    self.unused -= usize::from(blocks == 0);
                }
            }
            Action::Alloc => self.change(address, true),
            Action::FreeCompleted => self.change(address, false),
            _ => {}
        }
    }

    fn change(&mut self, address: u64, is_taken: bool) {
        let below = self.segments.range_mut(..=address).next_back();
        let Some((_, (_, blocks))) = below.filter(|(_, (end, _))| address < *end) else { return };
        let was_unused = *blocks == 0;
        *blocks = if is_taken { *blocks + 1 } else { blocks.saturating_sub(1) };
        match (was_unused, *blocks == 0) {
            (true, false) => self.unused -= 1,
            (false, true) => self.unused += 1,
            _ => {}
        }
    }

    fn has_unused(&self) -> bool {
        self.unused > 0
    }
}

/// Whether the segments of the default pool are in the order of `empty_cache`.
fn is_sorted(run: &[(usize, Event)], lifetimes: &SegmentLifetimes) -> bool {
    run.iter()
        .filter(|(index, event)| {
            event.action == Action::SegmentFree
                && lifetimes.of_release(*index).is_none_or(|lifetime| lifetime.pool == PoolId::DEFAULT)
        })
        .map(|(_, event)| {
            let size = event.size.get();
            (size <= SMALL_SEGMENT, event.stream.0, size, event.address.0)
        })
        .is_sorted()
}

fn is_take(action: Action) -> bool {
    matches!(action, Action::SegmentAlloc | Action::SegmentMap)
}

fn is_release(action: Action) -> bool {
    matches!(action, Action::SegmentFree | Action::SegmentUnmap)
}

/// Whether this event may be the allocator's own next step after a release.
fn follows(next: Option<Event>) -> bool {
    next.is_some_and(|next| next.action == Action::OutOfMemory || is_take(next.action))
}

fn names_empty_cache(stacks: &Stacks, stack: StackId) -> bool {
    stacks
        .frames_of(stack)
        .iter()
        .any(|&frame| stacks.name_text(stacks.frame_at(frame).function).contains("empty_cache"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::recording;

    /// Segments of 20, 30 and 40 MiB and a block in the last one; then these are freed, and new memory follows.
    fn calls(freed: &[(u64, u64)]) -> Vec<u32> {
        let mut events = Vec::new();
        for (address, size) in [(0, 20), (100, 30), (200, 40)] {
            events.extend([(Action::SegmentAlloc, address, size), (Action::Alloc, address, size)]);
        }
        events.extend([(Action::FreeCompleted, 0, 20), (Action::FreeCompleted, 100, 30)]);
        events.extend(freed.iter().map(|&(address, size)| (Action::SegmentFree, address, size)));
        events.extend([(Action::SegmentAlloc, 300, 20), (Action::Alloc, 300, 20)]);
        // More than there was before: the release was not for lack of memory.
        events.push((Action::SegmentAlloc, 400, 60));
        let device = recording(&events);
        let start = Start::new(&device);
        empty_cache_calls(&device, &Stacks::default(), &start, &SegmentLifetimes::new(&device))
    }

    #[test]
    fn a_call_frees_every_unused_segment_in_order() {
        assert_eq!(calls(&[(0, 20), (100, 30)]), [8]);
        // One is left.
        assert!(calls(&[(0, 20)]).is_empty());
        // The larger one comes first, because it is older.
        assert!(calls(&[(100, 30), (0, 20)]).is_empty());
    }
}
