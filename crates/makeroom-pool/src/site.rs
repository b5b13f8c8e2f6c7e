//! Who asked: a place in Rust code, or an address in somebody else's.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;

use makeroom_core::{Address, FastMap};
use makeroom_place::pool::BlockId;

use crate::drop_site;

/// Who asked for memory or gave it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// A line of Rust.
    Rust(&'static Location<'static>),
    /// An address in machine code: where a C function was called from.
    Code(u64),
}

impl Site {
    /// The line that called the function that asks.
    #[track_caller]
    #[inline]
    pub fn here() -> Self {
        Self::Rust(Location::caller())
    }

    /// The line at which a value is dropped, from inside of its `drop`: the compiler does not pass that on, so debug
    /// builds walk the stack. In others it is not known.
    pub(crate) fn of_drop() -> Self {
        let walked = if cfg!(debug_assertions) { drop_site::find() } else { None };
        walked.map_or_else(Self::here, Self::Code)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rust(location) => write!(formatter, "{location}"),
            Self::Code(address) => match drop_site::line(*address) {
                Some(line) => formatter.write_str(&line),
                None => write!(formatter, "code at {address:#x}"),
            },
        }
    }
}

/// How many frees are remembered, to name the first when a second comes.
const REMEMBERED: usize = 4096;

/// The sites of blocks in use, and of those freed last.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    by_block: Vec<Option<Site>>,
    freed: FastMap<u64, (Site, Site)>,
    order: VecDeque<u64>,
}

impl Sites {
    pub(crate) fn allocated(&mut self, block: BlockId, address: Address, site: Site) {
        let index = block.0 as usize;
        if index >= self.by_block.len() {
            self.by_block.resize(index + 1, None);
        }
        self.by_block[index] = Some(site);
        self.freed.remove(&address.0);
    }

    pub(crate) fn freed(&mut self, block: BlockId, address: Address, site: Site) {
        let Some(allocated) = self.by_block.get_mut(block.0 as usize).and_then(Option::take) else { return };
        if self.freed.insert(address.0, (allocated, site)).is_none() {
            self.order.push_back(address.0);
        }
        while self.order.len() > REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.freed.remove(&oldest);
            }
        }
    }

    /// Where the memory at an address was allocated and freed.
    pub(crate) fn before(&self, address: Address) -> Option<(Site, Site)> {
        self.freed.get(&address.0).copied()
    }
}
