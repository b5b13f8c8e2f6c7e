//! Handles, and the page tables that map addresses to handles.
//!
//! Invariant: a handle is mapped at one address or not at all; exactly the pages of that mapping refer to it.

use super::backing::{PAGE, Piece};
use super::tiles::{NONE, TileId};

/// The index of a handle in the table.
pub(crate) type HandleId = u32;

/// No handle.
pub(crate) const NO_HANDLE: HandleId = u32::MAX;

/// A handle and its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldHandle {
    pub(crate) piece: Piece,
    /// Where it is mapped; 0 if unmapped.
    pub(crate) address: u64,
    /// A tile that is or was at that address: the starting point of a search.
    pub(crate) near: TileId,
}

/// A range of addresses reserved by the backing.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Its first tile. A tile that absorbs the next one keeps its ID, so this never changes.
    pub(crate) first: TileId,
    /// The handle behind each page, up to the last page that was ever mapped.
    pages: Vec<HandleId>,
}

/// All handles and ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handles {
    table: Vec<HeldHandle>,
    vacant: Vec<HandleId>,
    pub(crate) ranges: Vec<Range>,
    /// Unmapped handles, left over from failed calls.
    pub(crate) spare: Vec<HandleId>,
    reserved: u64,
    /// Peak of reserved memory.
    pub(crate) peak: u64,
}

impl Handles {
    /// Σ of the sizes of all handles.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// The number of handles.
    pub(crate) fn count(&self) -> u64 {
        (self.table.len() - self.vacant.len()) as u64
    }

    pub(crate) fn get(&self, id: HandleId) -> HeldHandle {
        self.table[id as usize]
    }

    pub(crate) fn add_range(&mut self, address: u64, size: u64, first: TileId) {
        self.ranges.push(Range { address, size, first, pages: Vec::new() });
    }

    /// Adds a handle that is not mapped yet.
    pub(crate) fn add(&mut self, piece: Piece) -> HandleId {
        self.reserved += piece.size;
        self.peak = self.peak.max(self.reserved);
        let held = HeldHandle { piece, address: 0, near: NONE };
        if let Some(id) = self.vacant.pop() {
            self.table[id as usize] = held;
            return id;
        }
        self.table.push(held);
        self.table.len() as HandleId - 1
    }

    /// Removes a handle that was released.
    pub(crate) fn remove(&mut self, id: HandleId) {
        self.reserved -= self.get(id).piece.size;
        self.table[id as usize].piece.size = 0;
        self.vacant.push(id);
    }

    /// Records the tile that contains a handle.
    pub(crate) fn note(&mut self, id: HandleId, tile: TileId) {
        self.table[id as usize].near = tile;
    }

    /// Records that a handle was mapped at an address.
    pub(crate) fn map(&mut self, id: HandleId, address: u64) {
        self.table[id as usize].address = address;
        self.name_pages(address, self.get(id).piece.size, id);
    }

    /// Records that a handle was unmapped.
    pub(crate) fn unmap(&mut self, id: HandleId) {
        let HeldHandle { piece, address, .. } = self.get(id);
        self.table[id as usize].address = 0;
        self.name_pages(address, piece.size, NO_HANDLE);
    }

    fn name_pages(&mut self, address: u64, size: u64, id: HandleId) {
        let Some(range) = self.ranges.iter_mut().find(|range| range.contains(address)) else { return };
        let first = ((address - range.address) / PAGE) as usize;
        let last = first + (size / PAGE) as usize;
        if range.pages.len() < last {
            range.pages.resize(last, NO_HANDLE);
        }
        range.pages[first..last].fill(id);
    }

    /// The range that contains an address.
    pub(crate) fn range_of(&self, address: u64) -> Option<&Range> {
        self.ranges.iter().find(|range| range.contains(address))
    }

    /// Whether an address is in one of the ranges.
    pub(crate) fn is_own(&self, address: u64) -> bool {
        self.range_of(address).is_some()
    }

    /// The handle behind an address.
    pub(crate) fn at(&self, address: u64) -> Option<HandleId> {
        let range = self.range_of(address)?;
        let id = *range.pages.get(((address - range.address) / PAGE) as usize)?;
        (id != NO_HANDLE).then_some(id)
    }

    /// The index of the range that contains an address.
    pub(crate) fn range_number(&self, address: u64) -> usize {
        self.ranges.iter().position(|range| range.contains(address)).unwrap_or(usize::MAX)
    }

    /// How many bytes between two addresses, all of them mapped, belong to handles that are entirely inside this
    /// interval.
    pub(crate) fn movable(&self, from: u64, to: u64) -> u64 {
        let handle_at = |address| self.at(address).map(|id| self.get(id));
        let start = handle_at(from)
            .map_or(to, |first| if first.address < from { first.address + first.piece.size } else { from });
        let end = handle_at(to - 1)
            .map_or(from, |last| if last.address + last.piece.size > to { last.address } else { to });
        end.saturating_sub(start)
    }

    /// The handles entirely between two addresses, in order. All addresses in the interval must be mapped.
    pub(crate) fn within(&self, from: u64, to: u64) -> impl Iterator<Item = HandleId> + '_ {
        let mut at = from;
        std::iter::from_fn(move || {
            while at < to {
                let id = self.at(at)?;
                let held = self.get(id);
                let (start, end) = (held.address, held.address + held.piece.size);
                at = end;
                if start >= from && end <= to {
                    return Some(id);
                }
            }
            None
        })
    }
}

impl Range {
    /// Whether the range contains an address.
    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.address..self.address + self.size).contains(&address)
    }
}
