//! Call sites: a line of Rust, or a return address in other code.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;

use makeroom_core::{Address, FastMap};
use makeroom_place::pool::BlockId;

#[cfg(feature = "drop-sites")]
use crate::drop_site;

/// The site of an allocation or free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// A line of Rust.
    Rust(&'static Location<'static>),
    /// An address in machine code, from which a C function was called.
    Code(u64),
}

impl Site {
    /// The line that called the current function.
    #[track_caller]
    #[inline]
    pub fn here() -> Self {
        Self::Rust(Location::caller())
    }

    /// The line at which a value is dropped, called from its `drop`. The compiler does not track that, so debug
    /// builds with the feature `drop-sites` walk the stack; other builds do not know it.
    pub(crate) fn of_drop() -> Self {
        #[cfg(feature = "drop-sites")]
        if cfg!(debug_assertions)
            && let Some(address) = drop_site::find()
        {
            return Self::Code(address);
        }
        Self::here()
    }
}

impl fmt::Display for Site {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rust(location) => write!(formatter, "{location}"),
            Self::Code(address) => {
                #[cfg(feature = "drop-sites")]
                if let Some(line) = drop_site::line(*address) {
                    return formatter.write_str(&line);
                }
                write!(formatter, "code at {address:#x}")
            }
        }
    }
}

/// Number of frees remembered, to name the first in a double free.
const REMEMBERED: usize = 4096;

/// The sites of live blocks, and of the most recently freed ones.
///
/// `order` has the addresses of `freed`, oldest first, and stale entries for addresses allocated or freed again
/// since: their number differs from the one in `freed`.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    by_block: Vec<Option<Site>>,
    freed: FastMap<u64, Past>,
    order: VecDeque<(u64, u64)>,
    /// Number of frees so far.
    count: u64,
}

/// Where memory was allocated and freed, and the number of that free.
#[derive(Clone, Copy, Debug)]
struct Past {
    sites: (Site, Site),
    number: u64,
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
        self.count += 1;
        self.freed.insert(address.0, Past { sites: (allocated, site), number: self.count });
        self.order.push_back((address.0, self.count));
        if self.order.len() > REMEMBERED
            && let Some((oldest, number)) = self.order.pop_front()
            && self.freed.get(&oldest).is_some_and(|past| past.number == number)
        {
            self.freed.remove(&oldest);
        }
    }

    /// Where the memory at an address was last allocated and freed.
    pub(crate) fn before(&self, address: Address) -> Option<(Site, Site)> {
        self.freed.get(&address.0).map(|past| past.sites)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_frees_are_remembered_however_often_an_address_comes_back() {
        let (site, rounds) = (Site::Code, 3 * REMEMBERED as u64);
        let mut sites = Sites::default();
        for round in 0..rounds {
            for (block, address) in [(BlockId(0), Address(512)), (BlockId(1), Address(1024))] {
                sites.allocated(block, address, site(round));
                assert_eq!(sites.before(address), None, "it is in use");
                sites.freed(block, address, site(rounds + round));
                assert_eq!(sites.before(address), Some((site(round), site(rounds + round))));
            }
        }
        assert!(sites.before(Address(512)).is_some(), "freed before the last one");
        for address in 0..REMEMBERED as u64 {
            sites.allocated(BlockId(2), Address(4096 + address * 512), site(1));
            sites.freed(BlockId(2), Address(4096 + address * 512), site(2));
        }
        assert_eq!(sites.before(Address(512)), None, "too many since");
        assert!(sites.order.len() <= REMEMBERED && sites.freed.len() <= REMEMBERED);
    }
}
