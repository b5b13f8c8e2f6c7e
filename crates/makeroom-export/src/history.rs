//! Shared by all formats: a device's allocations with their lifetimes, times, live and reserved memory after each
//! event, and names of sites and events.

use makeroom_core::{Action, DeviceTrace, Event, FrameId, StackId, Start, Trace};
use makeroom_explain::{Allocation, Allocations, Places};

/// Bytes of a stack as a text. Rows repeat it, so a file with one long stack and many events would otherwise become as
/// large as their product.
const LONGEST_STACK: usize = 8 << 10;

/// One device, read once.
pub(crate) struct History<'trace> {
    pub(crate) device: &'trace DeviceTrace,
    pub(crate) start: Start,
    pub(crate) allocations: Allocations,
}

impl<'trace> History<'trace> {
    pub(crate) fn new(device: &'trace DeviceTrace) -> Self {
        let start = Start::new(device);
        // Sums by stack are not needed; for every device they would take as much as there are stacks.
        let allocations = Allocations::new(device, &start, 0);
        Self { device, start, allocations }
    }

    /// All allocations with their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, Allocation)> {
        (0..self.allocations.len() as u32).filter_map(|number| Some((number, self.get(number)?)))
    }

    pub(crate) fn get(&self, number: u32) -> Option<Allocation> {
        self.allocations.get(number, self.device, &self.start)
    }

    /// The allocations that are live after this many events, with their numbers.
    pub(crate) fn live_at(&self, position: usize) -> impl Iterator<Item = (u32, Allocation)> {
        self.allocations.live_at(position).into_iter().filter_map(|number| Some((number, self.get(number)?)))
    }

    /// Whether reserved memory is known: the allocations are in segments.
    pub(crate) fn has_segments(&self) -> bool {
        let makes = |action: &Action| matches!(action, Action::SegmentAlloc | Action::SegmentMap);
        !self.device.segments.is_empty()
            || !self.start.segments.is_empty()
            || self.device.events.actions().iter().any(makes)
    }

    /// All events with their indices, and the live and reserved memory after each.
    pub(crate) fn events(&self) -> impl Iterator<Item = (usize, Event, Totals)> {
        let mut totals = Totals { live: self.start.live().get(), reserved: self.start.reserved().get() };
        self.device.events.iter().enumerate().map(move |(index, event)| {
            totals.follow(self, index, &event);
            (index, event, totals)
        })
    }

    /// The time of an event, in microseconds since the epoch.
    pub(crate) fn time(&self, event: usize) -> Option<u64> {
        self.device.events.get(event).map(|event| event.time_us).filter(|&time| time > 0)
    }
}

/// Bytes after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) live: u64,
    pub(crate) reserved: u64,
}

impl Totals {
    fn follow(&mut self, history: &History<'_>, index: usize, event: &Event) {
        let size = |number: Option<u32>| {
            number.and_then(|number| history.get(number)).map_or(0, |allocation| allocation.requested)
        };
        let bytes = event.size.get();
        match event.action {
            Action::Alloc => {
                let lost = size(history.allocations.replaced_by(index));
                self.live = self.live.saturating_sub(lost).saturating_add(bytes);
            }
            Action::FreeCompleted => {
                self.live = self.live.saturating_sub(size(history.allocations.of_event(index)));
            }
            Action::SegmentAlloc | Action::SegmentMap => self.reserved = self.reserved.saturating_add(bytes),
            Action::SegmentFree | Action::SegmentUnmap => self.reserved = self.reserved.saturating_sub(bytes),
            Action::FreeRequested | Action::Snapshot | Action::OutOfMemory => {}
        }
    }
}

/// The name of an event, as in PyTorch's snapshots.
pub(crate) fn name(action: Action) -> &'static str {
    match action {
        Action::Alloc => "alloc",
        Action::FreeRequested => "free_requested",
        Action::FreeCompleted => "free_completed",
        Action::SegmentAlloc => "segment_alloc",
        Action::SegmentFree => "segment_free",
        Action::SegmentMap => "segment_map",
        Action::SegmentUnmap => "segment_unmap",
        Action::Snapshot => "snapshot",
        Action::OutOfMemory => "oom",
    }
}

/// Names by stack, cached.
pub(crate) struct Names<'trace> {
    trace: &'trace Trace,
    places: Places<'trace>,
    sites: Vec<Option<String>>,
    stacks: Vec<Option<String>>,
}

impl<'trace> Names<'trace> {
    pub(crate) fn new(trace: &'trace Trace) -> Self {
        let none = vec![None; trace.stacks.len()];
        Self { trace, places: Places::new(trace), sites: none.clone(), stacks: none }
    }

    /// The program's own line in a stack; empty if no stack was recorded.
    pub(crate) fn site(&mut self, stack: StackId) -> &str {
        let places = self.places;
        let name = || places.site(stack).map_or(String::new(), |(frame, _)| places.describe(frame));
        self.sites[stack.index()].get_or_insert_with(name)
    }

    /// The frames of a stack, the outermost first, with semicolons between: all of them, or the innermost where they are
    /// longer than [`LONGEST_STACK`].
    pub(crate) fn stack(&mut self, stack: StackId) -> &str {
        let (trace, places) = (self.trace, self.places);
        self.stacks[stack.index()].get_or_insert_with(|| {
            let mut names: Vec<String> = Vec::new();
            let mut length = 0;
            for &frame in trace.stacks.frames_of(stack) {
                let name = places.describe(frame).replace(';', ",");
                length += name.len() + 1;
                if length > LONGEST_STACK {
                    names.push("…".to_owned());
                    break;
                }
                names.push(name);
            }
            names.reverse();
            names.join(";")
        })
    }

    /// The frames of a stack, outermost first.
    pub(crate) fn frames(&self, stack: StackId) -> impl Iterator<Item = FrameId> + use<'trace> {
        self.trace.stacks.frames_of(stack).iter().rev().copied()
    }

    /// A frame's line; 0 if unknown.
    pub(crate) fn line(&self, frame: FrameId) -> u32 {
        self.trace.stacks.frame_at(frame).line
    }

    /// A frame's function and file.
    pub(crate) fn of_frame(&self, frame: FrameId) -> (String, String) {
        self.places.names(frame)
    }
}
