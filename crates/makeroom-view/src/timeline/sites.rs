//! The sites that hold a device's memory, the largest at the peak first.
//!
//! A site is a line, a frame or a module that represents a stack; stacks with the same one are one site. There are
//! two sites for memory
//! without a stack: if no stack was recorded, and if the memory is older than the recording.

use std::collections::HashMap;

use makeroom_core::{FastMap, FrameId, StackId, Trace};
use makeroom_explain::{Allocation, Places};

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

/// What a site stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The program's innermost own line.
    Line,
    /// What that line called: the innermost frame.
    Frame,
    /// The file or library of that frame.
    Module,
}

impl By {
    /// The name in paths.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "line" => Some(Self::Line),
            "frame" => Some(Self::Frame),
            "module" => Some(Self::Module),
            _ => None,
        }
    }
}

/// One site.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) frame: Option<FrameId>,
    pub(crate) is_own: bool,
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
    no_stack: u32,
    older: u32,
    layers: Vec<u8>,
}

impl Sites {
    /// All sites of a trace, not ranked yet.
    pub(crate) fn new(trace: &Trace, by: By) -> Self {
        let places = Places::new(trace);
        let mut sites = Self {
            list: Vec::new(),
            of_stack: Vec::with_capacity(trace.stacks.len()),
            no_stack: 0,
            older: 1,
            layers: Vec::new(),
        };
        sites.push(NO_STACK.to_owned(), None, false);
        sites.push(NOT_IN_HISTORY.to_owned(), None, false);
        let mut by_frame: FastMap<FrameId, u32> = FastMap::default();
        let mut by_name: HashMap<String, u32> = HashMap::new();
        for stack in trace.stacks.ids() {
            let represents = match by {
                By::Line => places.site(stack),
                By::Frame | By::Module => places.inner(stack).map(|frame| (frame, false)),
            };
            let Some((frame, is_own)) = represents else {
                sites.of_stack.push(sites.no_stack);
                continue;
            };
            let site = *by_frame.entry(frame).or_insert_with(|| {
                let name = match by {
                    By::Line | By::Frame => places.describe(frame),
                    By::Module => places.module(frame),
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
        self.of_parts(allocation.stack, allocation.born.is_none())
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
        order.sort_by_key(|&site| std::cmp::Reverse(weight(site)));
        let mut number_of = vec![0; order.len()];
        for (number, &site) in order.iter().enumerate() {
            number_of[site as usize] = number as u32;
        }
        let mut list: Vec<Option<Site>> = std::mem::take(&mut self.list).into_iter().map(Some).collect();
        self.list = order.iter().filter_map(|&site| list[site as usize].take()).collect();
        for site in &mut self.of_stack {
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
