//! What every form needs of a device: its allocations with birth and end, its times, and the names of places.

use makeroom_core::{DeviceTrace, FrameId, StackId, Start, Trace};
use makeroom_explain::{Allocation, Allocations, Places};

/// One device, read once.
pub(crate) struct History<'trace> {
    pub(crate) device: &'trace DeviceTrace,
    pub(crate) start: Start,
    pub(crate) allocations: Allocations,
}

impl<'trace> History<'trace> {
    pub(crate) fn new(trace: &Trace, device: &'trace DeviceTrace) -> Self {
        let start = Start::new(device);
        let allocations = Allocations::new(device, &start, trace.stacks.len());
        Self { device, start, allocations }
    }

    /// All allocations with their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, Allocation)> {
        (0..self.allocations.len() as u32).filter_map(|number| Some((number, self.get(number)?)))
    }

    pub(crate) fn get(&self, number: u32) -> Option<Allocation> {
        self.allocations.get(number, self.device, &self.start)
    }

    /// What is live after so many events.
    pub(crate) fn live_at(&self, position: usize) -> impl Iterator<Item = Allocation> {
        self.allocations.live_at(position).into_iter().filter_map(|number| self.get(number))
    }

    /// When an event happened, in microseconds since the epoch.
    pub(crate) fn time(&self, event: usize) -> Option<u64> {
        self.device.events.get(event).map(|event| event.time_us).filter(|&time| time > 0)
    }
}

/// Names by stack, each made once.
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

    /// The program's own line of a stack; empty where no stack was recorded.
    pub(crate) fn site(&mut self, stack: StackId) -> &str {
        let places = self.places;
        let name = || places.site(stack).map_or(String::new(), |(frame, _)| places.describe(frame));
        self.sites[stack.index()].get_or_insert_with(name)
    }

    /// All frames of a stack, the outermost first, with semicolons between.
    pub(crate) fn stack(&mut self, stack: StackId) -> &str {
        let (trace, places) = (self.trace, self.places);
        self.stacks[stack.index()].get_or_insert_with(|| {
            let frames = trace.stacks.frames_of(stack).iter().rev();
            let names: Vec<String> = frames.map(|&frame| places.describe(frame).replace(';', ",")).collect();
            names.join(";")
        })
    }

    /// The frames of a stack, the outermost first.
    pub(crate) fn frames(&self, stack: StackId) -> impl Iterator<Item = FrameId> + use<'trace> {
        self.trace.stacks.frames_of(stack).iter().rev().copied()
    }

    /// A frame's line, 0 where it is not known.
    pub(crate) fn line(&self, frame: FrameId) -> u32 {
        self.trace.stacks.frame_at(frame).line
    }

    /// A frame's function and file.
    pub(crate) fn of_frame(&self, frame: FrameId) -> (String, String) {
        self.places.names(frame)
    }
}
