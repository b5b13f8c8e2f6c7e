//! The history of one device, for queries about any moment.
//!
//! ```text
//! reserved.rs      reserved memory and its segments
//! sites.rs         the sites that hold memory, ranked
//! assigned.rs      sites that a stack does not determine: kinds, sizes, single allocations
//! series.rs        sums over time in buckets of any width
//! ```
//!
//! A *position* `p` is the moment after `p` events, so there is one more position than events. Positions have 32
//! bits: a recording with more events would not fit in memory.

mod assigned;
mod reserved;
mod series;
mod sites;

use std::sync::OnceLock;

use makeroom_core::{Action, DeviceTrace, Start, Trace};
use makeroom_explain::{Allocation, Allocations, HeldSegment, LiveBlock, SizesAtEnd};
use makeroom_kind::Kinds;
use makeroom_sim::Settings;

use reserved::Reserved;
use series::{Series, Turn, Walk};
pub(crate) use series::{Sum, TILE, width};
pub use sites::By;
pub(crate) use sites::{MOST_SITES, NOT_IN_HISTORY, OLDER_LAYER, OTHER_LAYER, Site, Sites};

/// The history of one device.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// The index of the device in its trace.
    index: usize,
    pub(crate) start: Start,
    pub(crate) allocations: Allocations,
    pub(crate) reserved: Reserved,
    /// By line.
    pub(crate) grouping: Grouping,
    /// By everything else, in the order of `By::OTHERS`, once it is requested.
    others: [OnceLock<Grouping>; By::OTHERS.len()],
    kinds: OnceLock<Kinds>,
    /// Unused memory at the peak and at the position of interest, once it was requested.
    pub(crate) unused: OnceLock<(u64, u64)>,
    pub(crate) sizes_at_end: SizesAtEnd,
    pub(crate) settings: Settings,
    /// Positions of failed allocations.
    pub(crate) failures: Vec<usize>,
    /// The peak of each stack.
    pub(crate) stack_peaks: Vec<u64>,
}

/// The sites of one kind, and the series with their layers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grouping {
    pub(crate) sites: Sites,
    pub(crate) series: Series,
}

impl Timeline {
    /// Reads the history of a device.
    pub(crate) fn new(trace: &Trace, index: usize) -> Option<Self> {
        let device = device_at(trace, index)?;
        let start = Start::new(device);
        let allocations = Allocations::new(device, &start, trace.stacks.len());
        let reserved = Reserved::new(device, &start, &allocations);
        let failures = device.events.actions().iter().enumerate();
        let failures = failures.filter(|(_, action)| **action == Action::OutOfMemory);
        let mut timeline = Self {
            index,
            start,
            allocations,
            reserved,
            grouping: Grouping::default(),
            others: Default::default(),
            kinds: OnceLock::new(),
            unused: OnceLock::new(),
            sizes_at_end: SizesAtEnd::new(device, 0),
            settings: Settings::recorded(&trace.settings),
            failures: failures.map(|(event, _)| event).collect(),
            stack_peaks: vec![0; trace.stacks.len()],
        };
        let (grouping, stack_peaks) = timeline.grouped(trace, By::Line);
        timeline.grouping = grouping;
        timeline.stack_peaks = stack_peaks;
        Some(timeline)
    }

    /// The sites and their series. Anything but lines takes a pass over all events the first time.
    pub(crate) fn grouping(&self, trace: &Trace, by: By) -> &Grouping {
        match By::OTHERS.iter().position(|&other| other == by) {
            Some(other) => self.others[other].get_or_init(|| self.grouped(trace, by).0),
            None => &self.grouping,
        }
    }

    /// The kinds of all allocations.
    pub(crate) fn kinds(&self, trace: &Trace) -> &Kinds {
        self.kinds.get_or_init(|| Kinds::new(trace, self.device(trace)))
    }

    fn sites(&self, trace: &Trace, by: By) -> Sites {
        match by {
            By::Line | By::Frame | By::File => Sites::of_stacks(trace, by),
            By::Group(group) => assigned::groups(trace, self, self.kinds(trace), group),
            By::Size => assigned::sizes(trace, self),
            By::Allocation => assigned::allocations(trace, self),
        }
    }

    /// Whether this is pinned host memory, not the memory of a GPU.
    pub(crate) fn is_pinned(&self, trace: &Trace) -> bool {
        self.index >= trace.devices.len()
    }

    /// The device of this history.
    pub(crate) fn device<'trace>(&self, trace: &'trace Trace) -> &'trace DeviceTrace {
        trace.devices.get(self.index).unwrap_or(&trace.pinned)
    }

    /// Number of events; also the last position.
    pub(crate) fn events(&self, trace: &Trace) -> usize {
        self.device(trace).events.len()
    }

    /// One allocation.
    pub(crate) fn allocation(&self, trace: &Trace, number: u32) -> Option<Allocation> {
        self.allocations.get(number, self.device(trace), &self.start)
    }

    /// The allocations that are live at a position.
    pub(crate) fn live_at(&self, trace: &Trace, position: usize) -> impl Iterator<Item = Allocation> {
        self.allocations.live_at(position).into_iter().filter_map(|number| self.allocation(trace, number))
    }

    /// The live blocks at a position by ascending address, and their allocations.
    pub(crate) fn blocks_at(&self, trace: &Trace, position: usize) -> (Vec<LiveBlock>, Vec<Allocation>) {
        let mut live: Vec<Allocation> = self.live_at(trace, position).collect();
        live.sort_unstable_by_key(|allocation| allocation.address);
        let block = |allocation: &Allocation| LiveBlock::new(allocation, allocation.is_pending(position));
        (live.iter().map(block).collect(), live)
    }

    /// The segments at a position.
    pub(crate) fn segments_at(&self, trace: &Trace, position: usize) -> Vec<HeldSegment> {
        self.reserved.segments_at(self.device(trace), position)
    }

    /// The sums at a position.
    pub(crate) fn sum_at(&self, trace: &Trace, position: usize) -> Sum {
        self.grouping.series.at(trace, self, &self.grouping.sites, position)
    }

    /// The position to show first: the first failed allocation, or the peak.
    pub(crate) fn interest(&self) -> usize {
        self.failures.first().copied().unwrap_or(self.allocations.peak.0)
    }

    /// The time of a position in microseconds since the epoch: that of the last event before it.
    pub(crate) fn time(&self, trace: &Trace, position: usize) -> Option<u64> {
        let event = self.device(trace).events.get(position.saturating_sub(1))?;
        (event.time_us > 0).then_some(event.time_us)
    }

    /// The same, since the first event.
    pub(crate) fn time_since_start(&self, trace: &Trace, position: usize) -> Option<u64> {
        Some(self.time(trace, position)?.saturating_sub(self.time(trace, 0)?))
    }

    /// The sites of a kind, ranked, and one pass over all events for their series; and the peak of each stack.
    fn grouped(&self, trace: &Trace, by: By) -> (Grouping, Vec<u64>) {
        let mut sites = self.sites(trace, by);
        self.rank(trace, &mut sites);
        let mut held = Holdings::new(sites.list.len(), trace.stacks.len());
        let mut tell = |turn: Turn, allocation: &Allocation, holder: u32| held.turn(turn, allocation, holder);
        let mut series = Series::new(self.events(trace));
        let mut walk = Walk { trace, timeline: self, sites: &sites, sum: Sum::default() };
        walk.sum.reserved = self.reserved.at_start;
        for number in 0..self.allocations.older as u32 {
            walk.begin_older(number, &mut tell);
        }
        series.add(&walk.sum);
        for event in 0..self.events(trace) {
            walk.step(event, &mut tell);
            series.add(&walk.sum);
        }
        for (site, found) in sites.list.iter_mut().zip(held.sites) {
            site.peak = found.peak;
            site.live_at_end = found.live;
            site.allocated = found.allocated;
            site.count = found.count;
        }
        (Grouping { sites, series }, held.stack_peaks)
    }

    fn rank(&self, trace: &Trace, sites: &mut Sites) {
        let mut live = vec![0_u64; sites.list.len()];
        let mut asked = live.clone();
        let mut add = |site: u32, bytes: u64| {
            let asked = &mut asked[site as usize];
            *asked = asked.saturating_add(bytes);
        };
        if sites.follow_from_stacks() {
            for (stack, &bytes) in trace.stacks.ids().zip(&self.allocations.asked_by_stack) {
                add(sites.of_parts(stack, false), bytes);
            }
        } else {
            let all = 0..self.allocations.len() as u32;
            for allocation in all.filter_map(|number| self.allocation(trace, number)) {
                add(sites.site_of(&allocation), allocation.requested);
            }
        }
        for allocation in self.live_at(trace, self.allocations.peak.0) {
            let held = &mut live[sites.site_of(&allocation) as usize];
            *held = held.saturating_add(allocation.requested);
        }
        sites.rank(&live, &asked);
    }
}

/// A device of a trace, with pinned host memory after the last GPU.
fn device_at(trace: &Trace, index: usize) -> Option<&DeviceTrace> {
    let pinned =
        || (index == trace.devices.len() && !trace.pinned.events.is_empty()).then_some(&trace.pinned);
    trace.devices.get(index).or_else(pinned)
}

#[derive(Clone, Copy, Debug, Default)]
struct Holding {
    live: u64,
    peak: u64,
    allocated: u64,
    count: u64,
}

/// The memory of each site and each stack during the pass.
struct Holdings {
    sites: Vec<Holding>,
    stacks: Vec<u64>,
    stack_peaks: Vec<u64>,
}

impl Holdings {
    fn new(sites: usize, stacks: usize) -> Self {
        Self { sites: vec![Holding::default(); sites], stacks: vec![0; stacks], stack_peaks: vec![0; stacks] }
    }

    fn turn(&mut self, turn: Turn, allocation: &Allocation, holder: u32) {
        let size = allocation.requested;
        let stack = allocation.stack.index();
        let held = &mut self.sites[holder as usize];
        match turn {
            Turn::Begin => {
                held.live = held.live.saturating_add(size);
                held.peak = held.peak.max(held.live);
                held.allocated = held.allocated.saturating_add(size);
                held.count += 1;
                self.stacks[stack] = self.stacks[stack].saturating_add(size);
                self.stack_peaks[stack] = self.stack_peaks[stack].max(self.stacks[stack]);
            }
            Turn::End => {
                held.live = held.live.saturating_sub(size);
                self.stacks[stack] = self.stacks[stack].saturating_sub(size);
            }
        }
    }
}
