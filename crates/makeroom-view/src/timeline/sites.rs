//! The sites that hold a device's memory, the largest at the peak first.
//!
//! A site is a line, a frame or a file that represents a stack; stacks with the same one are one site. There are two
//! sites for memory without a stack: if no stack was recorded, and if the memory is older than the recording. Sites
//! that a stack does not determine, such as kinds of memory, are in `assigned.rs`.

use std::collections::HashMap;

use makeroom_core::{FastMap, FrameId, SortCompact as _, StackId, Trace};
use makeroom_explain::{Allocation, By as Group, Places};

/// Maximum number of sites that the page gets by name.
pub(crate) const MOST_SITES: usize = 2000;
/// Number of sites with their own layer in the series.
pub(crate) const OWN_LAYERS: usize = 23;
/// The layer of all other sites.
pub(crate) const OTHER_LAYER: usize = OWN_LAYERS;
/// The layer of memory that is older than the recording and has no stack.
pub(crate) const OLDER_LAYER: usize = OWN_LAYERS + 1;
/// All layers.
pub(crate) const LAYERS: usize = OWN_LAYERS + 2;

/// Names of the sites without a stack.
pub(crate) const NO_STACK: &str = "no stack recorded";
pub(crate) const NOT_IN_HISTORY: &str = "not in the history";
/// The name of the site of all allocations that have none of their own.
const REST: &str = "other allocations";

/// What a site stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The program's innermost own line.
    Line,
    /// What that line called: the innermost frame.
    Frame,
    /// The file or library of that frame.
    File,
    /// A group of `makeroom why --by`, except for lines.
    Group(Group),
    /// A range of sizes.
    Size,
    /// A single allocation, for the largest ones.
    Allocation,
}

impl By {
    /// All but lines, which a history always has.
    pub(crate) const OTHERS: [Self; 10] = [
        Self::Frame,
        Self::File,
        Self::Group(Group::Kind),
        Self::Group(Group::Module),
        Self::Group(Group::Stage),
        Self::Group(Group::Thread),
        Self::Group(Group::Stream),
        Self::Group(Group::Process),
        Self::Size,
        Self::Allocation,
    ];

    /// The name in paths and on the command line.
    pub fn id(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Frame => "frame",
            Self::File => "file",
            Self::Group(group) => group.id(),
            Self::Size => "size",
            Self::Allocation => "allocation",
        }
    }

    /// Everything that a site can stand for.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Line].into_iter().chain(Self::OTHERS)
    }

    /// What has this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|by| by.id() == name)
    }

    /// The part of a path that selects these sites. Lines need none.
    pub(crate) fn path(self) -> String {
        if self == Self::Line { String::new() } else { format!("/by/{}", self.id()) }
    }
}

/// One site.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) frame: Option<FrameId>,
    pub(crate) is_own: bool,
    /// Whether it stands for memory about which the recording does not have this information.
    pub(crate) is_unknown: bool,
    pub(crate) live_at_peak: u64,
    pub(crate) live_at_end: u64,
    /// Its peak.
    pub(crate) peak: u64,
    /// Total size and number of its allocations.
    pub(crate) allocated: u64,
    pub(crate) count: u64,
}

/// The sites of one device. A site's number is its index in `list`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sites {
    pub(crate) list: Vec<Site>,
    of_stack: Vec<u32>,
    /// By number of the allocation; empty if the stack determines the site.
    of_allocation: Vec<u32>,
    no_stack: u32,
    older: u32,
    /// The site of all allocations that have none of their own.
    rest: Option<u32>,
    layers: Vec<u8>,
}

impl Sites {
    /// The two sites without a stack.
    fn empty() -> Self {
        let mut sites = Self { no_stack: 0, older: 1, ..Self::default() };
        for name in [NO_STACK, NOT_IN_HISTORY] {
            let site = sites.push(name.to_owned(), None, false);
            sites.list[site as usize].is_unknown = true;
        }
        sites
    }

    /// Sites that the numbers of allocations determine, in order of these numbers: an index in `names`, or `None` for
    /// the rest. Not ranked yet.
    pub(crate) fn assigned(names: Vec<(String, bool)>, of_allocation: Vec<Option<u32>>) -> Self {
        let mut sites = Self::empty();
        let first = sites.list.len() as u32;
        for (name, is_unknown) in names {
            let site = sites.push(name, None, false);
            sites.list[site as usize].is_unknown = is_unknown;
        }
        if of_allocation.contains(&None) {
            let rest = sites.push(REST.to_owned(), None, false);
            sites.list[rest as usize].is_unknown = true;
            sites.rest = Some(rest);
        }
        let rest = sites.rest.unwrap_or(sites.no_stack);
        sites.of_allocation =
            of_allocation.into_iter().map(|found| found.map_or(rest, |found| first + found)).collect();
        sites
    }

    /// All lines, frames or files of a trace, not ranked yet.
    pub(crate) fn of_stacks(trace: &Trace, by: By) -> Self {
        let places = Places::new(trace);
        let mut sites = Self::empty();
        sites.of_stack.reserve(trace.stacks.len());
        let mut by_frame: FastMap<FrameId, u32> = FastMap::default();
        let mut by_name: HashMap<String, u32> = HashMap::new();
        for stack in trace.stacks.ids() {
            let represents = match by {
                By::Line => places.site(stack),
                _ => places.inner(stack).map(|frame| (frame, false)),
            };
            let Some((frame, is_own)) = represents else {
                sites.of_stack.push(sites.no_stack);
                continue;
            };
            let site = *by_frame.entry(frame).or_insert_with(|| {
                let name = match by {
                    By::File => places.module(frame),
                    _ => places.describe(frame),
                };
                *by_name.entry(name).or_insert_with_key(|name| sites.push(name.clone(), Some(frame), is_own))
            });
            sites.of_stack.push(site);
        }
        sites
    }

    fn push(&mut self, name: String, frame: Option<FrameId>, is_own: bool) -> u32 {
        self.list.push(Site {
            name,
            frame,
            is_own,
            is_unknown: false,
            live_at_peak: 0,
            live_at_end: 0,
            peak: 0,
            allocated: 0,
            count: 0,
        });
        self.list.len() as u32 - 1
    }

    /// The site of an allocation.
    pub(crate) fn site_of(&self, allocation: &Allocation) -> u32 {
        match self.of_allocation.get(allocation.number as usize) {
            Some(&site) => site,
            None => self.of_parts(allocation.stack, allocation.born.is_none()),
        }
    }

    /// Whether the stack of an allocation determines its site.
    pub(crate) fn follow_from_stacks(&self) -> bool {
        self.of_allocation.is_empty()
    }

    /// The site of a stack, which depends on whether the allocation is older than the recording.
    pub(crate) fn of_parts(&self, stack: StackId, is_older: bool) -> u32 {
        match self.of_stack.get(stack.index()) {
            Some(&site) if site != self.no_stack => site,
            _ if is_older => self.older,
            _ => self.no_stack,
        }
    }

    /// Sorts the sites by their memory at the peak, then by their total allocations. Sites without allocations come
    /// last: the table also has the stacks of frees.
    pub(crate) fn rank(&mut self, live_at_peak: &[u64], asked: &[u64]) {
        for (site, &live) in self.list.iter_mut().zip(live_at_peak) {
            site.live_at_peak = live;
        }
        let mut order: Vec<u32> = (0..self.list.len() as u32).collect();
        let weight = |site: u32| (live_at_peak[site as usize], asked[site as usize]);
        order.sort_compact_by_key(|&site| std::cmp::Reverse(weight(site)));
        let mut number_of = vec![0; order.len()];
        for (number, &site) in order.iter().enumerate() {
            number_of[site as usize] = number as u32;
        }
        let mut list: Vec<Option<Site>> = std::mem::take(&mut self.list).into_iter().map(Some).collect();
        self.list = order.iter().filter_map(|&site| list[site as usize].take()).collect();
        for site in self.of_stack.iter_mut().chain(&mut self.of_allocation).chain(&mut self.rest) {
            *site = number_of[*site as usize];
        }
        self.no_stack = number_of[self.no_stack as usize];
        self.older = number_of[self.older as usize];
        let mut layers = 0;
        self.layers = (0..self.list.len() as u32)
            .map(|site| {
                if site == self.older {
                    return OLDER_LAYER as u8;
                }
                if self.rest == Some(site) {
                    return OTHER_LAYER as u8;
                }
                layers += 1;
                if layers <= OWN_LAYERS { layers as u8 - 1 } else { OTHER_LAYER as u8 }
            })
            .collect();
    }

    /// The layer of a site.
    pub(crate) fn layer(&self, site: u32) -> usize {
        self.layers.get(site as usize).map_or(OTHER_LAYER, |&layer| usize::from(layer))
    }

    /// The sites with their own layers, in the order of the layers.
    pub(crate) fn with_layers(&self) -> impl Iterator<Item = (usize, &Site)> {
        let has_layer =
            |(number, site): &(usize, &Site)| site.count > 0 && self.layer(*number as u32) < OWN_LAYERS;
        self.list.iter().enumerate().filter(has_layer)
    }
}
