//! Ranges of addresses, their slots, and the pages of each slot.

use super::backing::Mark;
use crate::pool::{Handle, PAGE};

/// The index of a page in the table.
pub(super) type PageId = u32;
/// No page.
pub(super) const NO_PAGE: PageId = u32::MAX;

/// A part of a slot that has its own physical memory, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) address: u64,
    pub(super) size: u64,
    handle: Option<Handle>,
}

/// What the reports of blocks read and change of a page. Apart from the rest, so that a report touches few cache lines.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageState {
    /// When it became idle.
    pub(super) freed: Mark,
    /// Blocks that overlap it.
    pub(super) blocks: u32,
    has_memory: bool,
    is_on_host: bool,
    /// Its memory never moves.
    pub(super) is_pinned: bool,
}

impl PageState {
    /// Whether it has physical memory.
    pub(super) fn has_memory(&self) -> bool {
        self.has_memory
    }

    /// Whether its memory is the host's.
    pub(super) fn is_on_host(&self) -> bool {
        self.is_on_host
    }

    /// Whether its memory may move as soon as the GPU is done with it.
    pub(super) fn is_idle(&self) -> bool {
        self.blocks == 0 && self.has_memory && !self.is_pinned
    }
}

/// All pages. Those of a slot are next to each other.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct Pages {
    states: Vec<PageState>,
    table: Vec<Page>,
    /// Runs of unused entries, by length.
    vacant: Vec<(u32, Vec<PageId>)>,
}

impl Pages {
    pub(super) fn get(&self, id: PageId) -> &Page {
        &self.table[id as usize]
    }

    pub(super) fn state(&self, id: PageId) -> &PageState {
        &self.states[id as usize]
    }

    pub(super) fn state_mut(&mut self, id: PageId) -> &mut PageState {
        &mut self.states[id as usize]
    }

    /// The handle of its memory.
    pub(super) fn handle(&self, id: PageId) -> Option<Handle> {
        self.table[id as usize].handle
    }

    /// Gives it memory, in the place of any that it had.
    pub(super) fn set_memory(&mut self, id: PageId, handle: Handle, is_on_host: bool) {
        self.table[id as usize].handle = Some(handle);
        let state = self.state_mut(id);
        (state.has_memory, state.is_on_host) = (true, is_on_host);
    }

    /// Takes its memory away.
    pub(super) fn take_memory(&mut self, id: PageId) -> Option<Handle> {
        self.state_mut(id).has_memory = false;
        self.table[id as usize].handle.take()
    }

    /// The idle pages.
    pub(super) fn idle(&self) -> impl Iterator<Item = PageId> {
        (0..).zip(&self.states).filter(|(_, state)| state.is_idle()).map(|(id, _)| id)
    }

    fn add(&mut self, address: u64, size: u64, count: u32) -> PageId {
        let vacant = self.vacant.iter_mut().find(|(length, _)| *length == count);
        let first = vacant.and_then(|(_, runs)| runs.pop()).unwrap_or_else(|| {
            let first = self.table.len() as PageId;
            let length = self.table.len() + count as usize;
            self.table.resize(length, Page { address: 0, size, handle: None });
            self.states.resize(length, PageState::default());
            first
        });
        for (id, number) in (first..).zip(0..u64::from(count)) {
            self.table[id as usize] = Page { address: address + number * size, size, handle: None };
            *self.state_mut(id) = PageState::default();
        }
        first
    }

    fn remove(&mut self, first: PageId, count: u32) {
        match self.vacant.iter_mut().find(|(length, _)| *length == count) {
            Some((_, runs)) => runs.push(first),
            None => self.vacant.push((count, vec![first])),
        }
    }
}

/// Whether a block's pages have memory, and whether they keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is not in a range.
    Outside,
    /// Some of its pages have no memory.
    Missing,
    /// All of its pages have memory.
    Backed,
    /// All of its pages have memory and keep it, also without the block.
    Kept,
}

/// A mapped slot.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Its first page; `NO_PAGE` if the slot is not mapped.
    first: PageId,
    /// How many pages it has.
    count: u32,
    /// How many of them have no memory.
    missing: u32,
    /// The allocator gave it up, but some of its memory could not be released.
    is_returned: bool,
}

impl Slot {
    fn is_mapped(&self) -> bool {
        self.first != NO_PAGE && !self.is_returned
    }
}

const UNMAPPED: Slot = Slot { first: NO_PAGE, count: 0, missing: 0, is_returned: false };

/// A reserved range of addresses.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) size: u64,
    /// The size of its slots; 0 until one is mapped.
    slot: u64,
    slots: Vec<Slot>,
    /// Pages without memory in all of its slots.
    missing: u32,
    /// All of its pages keep their memory.
    pub(super) is_exempt: bool,
}

impl Range {
    fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.address) < self.size
    }

    fn index(&self, address: u64) -> usize {
        ((address - self.address) / self.slot) as usize
    }

    /// Calls `visit` with each mapped slot that a block overlaps, and the first and last of its pages that the block
    /// overlaps.
    #[inline]
    fn each_part(&self, address: u64, size: u64, mut visit: impl FnMut(&Slot, PageId, PageId)) {
        if self.slot == 0 {
            return;
        }
        let end = address.saturating_add(size.max(1)).min(self.address + self.size);
        let first = self.index(address);
        let mut start = self.address + first as u64 * self.slot;
        for slot in self.slots.iter().skip(first) {
            if start >= end {
                break;
            }
            if slot.is_mapped() && slot.count == 1 {
                visit(slot, slot.first, slot.first);
            } else if slot.is_mapped() {
                let page = self.slot / u64::from(slot.count);
                let (from, to) = (address.max(start) - start, end.min(start + self.slot) - 1 - start);
                visit(slot, slot.first + (from / page) as u32, slot.first + (to / page) as u32);
            }
            start += self.slot;
        }
    }
}

/// All ranges, by ascending address.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    list: Vec<Range>,
}

impl Ranges {
    /// Adds a range that overlaps no other.
    pub(super) fn add(&mut self, address: u64, size: u64) {
        let at = self.list.partition_point(|range| range.address < address);
        let range = Range { address, size, slot: 0, slots: Vec::new(), missing: 0, is_exempt: false };
        self.list.insert(at, range);
    }

    pub(super) fn find(&self, address: u64) -> Option<usize> {
        let at = self.list.partition_point(|range| range.address <= address).checked_sub(1)?;
        self.list[at].contains(address).then_some(at)
    }

    pub(super) fn get(&self, position: usize) -> &Range {
        &self.list[position]
    }

    pub(super) fn get_mut(&mut self, position: usize) -> &mut Range {
        &mut self.list[position]
    }

    /// Removes a range without mapped slots; returns whether there was one.
    pub(super) fn remove(&mut self, address: u64) -> bool {
        let Some(at) = self.list.iter().position(|range| range.address == address) else { return false };
        let is_empty = self.list[at].slots.iter().all(|slot| slot.first == NO_PAGE);
        if is_empty {
            self.list.remove(at);
        }
        is_empty
    }

    /// The addresses of the slots of a range that the allocator gave up and that still have memory.
    pub(super) fn returned(&self, address: u64) -> Vec<u64> {
        let Some(range) = self.list.iter().find(|range| range.address == address) else { return Vec::new() };
        let slots = range.slots.iter().enumerate().filter(|(_, slot)| slot.is_returned);
        slots.map(|(index, _)| address + index as u64 * range.slot).collect()
    }

    /// Divides a slot into pages, and returns the position of its range. `None` if it is not in a range, not aligned like the others, or mapped already.
    pub(super) fn map(&mut self, pages: &mut Pages, address: u64, size: u64, page: u64) -> Option<usize> {
        let position = self.find(address)?;
        let range = &mut self.list[position];
        let offset = address - range.address;
        let is_like_others = range.slot == 0 || range.slot == size;
        let is_inside = size > 0 && offset.is_multiple_of(size) && range.size - offset >= size;
        if !is_like_others || !is_inside {
            return None;
        }
        range.slot = size;
        // Small blocks are half of all blocks and hold little memory, and their slots cannot be divided. So these slots get
        // memory when they are mapped, as they would without paging, and their blocks cost almost no time.
        range.is_exempt |= size <= PAGE;
        let index = range.index(address);
        if range.slots.len() <= index {
            range.slots.resize(index + 1, UNMAPPED);
        }
        let slot = &mut range.slots[index];
        if slot.first != NO_PAGE {
            let was_returned = std::mem::take(&mut slot.is_returned);
            return was_returned.then_some(position);
        }
        let count = u32::try_from(size / page).ok()?;
        let first = pages.add(address, page, count);
        *slot = Slot { first, count, missing: count, is_returned: false };
        range.missing += count;
        Some(position)
    }

    /// A mapped slot becomes one page, which has no memory yet.
    pub(super) fn merge(&mut self, pages: &mut Pages, address: u64) -> Option<PageId> {
        let position = self.find(address)?;
        let range = &mut self.list[position];
        let index = range.index(address);
        let (start, size) = (range.address + index as u64 * range.slot, range.slot);
        let slot = range.slots.get_mut(index)?;
        pages.remove(slot.first, slot.count);
        let first = pages.add(start, size, 1);
        range.missing = range.missing - slot.missing + 1;
        *slot = Slot { first, count: 1, missing: 1, is_returned: false };
        Some(first)
    }

    /// The pages of a slot.
    pub(super) fn slot(&self, address: u64) -> Option<(PageId, u32)> {
        let range = &self.list[self.find(address)?];
        if range.slot == 0 {
            return None;
        }
        let slot = range.slots.get(range.index(address))?;
        slot.is_mapped().then_some((slot.first, slot.count))
    }

    /// The pages of a slot that the allocator gave up and that still has memory.
    pub(super) fn returned_slot(&self, address: u64) -> Option<(PageId, u32)> {
        let range = &self.list[self.find(address)?];
        if range.slot == 0 {
            return None;
        }
        let slot = range.slots.get(range.index(address))?;
        slot.is_returned.then_some((slot.first, slot.count))
    }

    /// The allocator gives up a slot. It is forgotten with [`Self::forget`].
    pub(super) fn give_up(&mut self, address: u64) {
        let Some(position) = self.find(address) else { return };
        let range = &mut self.list[position];
        let index = range.index(address);
        range.slots[index].is_returned = true;
    }

    /// Forgets a slot that was given up, and its pages, unless some still have memory.
    pub(super) fn forget(&mut self, pages: &mut Pages, address: u64) {
        let Some(position) = self.find(address) else { return };
        let range = &mut self.list[position];
        let index = range.index(address);
        let slot = &mut range.slots[index];
        if (slot.first..slot.first + slot.count).all(|id| !pages.state(id).has_memory()) {
            pages.remove(slot.first, slot.count);
            range.missing -= slot.missing;
            *slot = UNMAPPED;
        }
    }

    /// A page of the slot that contains an address got memory (−1) or lost it (+1).
    pub(super) fn count_missing(&mut self, address: u64, change: i32) {
        let Some(position) = self.find(address) else { return };
        let range = &mut self.list[position];
        let index = range.index(address);
        let missing = &mut range.slots[index].missing;
        *missing = missing.saturating_add_signed(change);
        range.missing = range.missing.saturating_add_signed(change);
    }

    /// Whether a block needs memory, and whether it matters to the policy. Most ranges and slots have all of their memory,
    /// and then their pages are not looked at.
    #[inline]
    pub(super) fn standing(&self, pages: &Pages, address: u64, size: u64) -> Standing {
        let Some(position) = self.find(address) else { return Standing::Outside };
        let range = &self.list[position];
        let mut is_backed = true;
        if range.missing > 0 {
            range.each_part(address, size, |slot, first, last| {
                is_backed &= slot.missing == 0 || (first..=last).all(|id| pages.state(id).has_memory());
            });
        }
        match (is_backed, range.is_exempt) {
            (false, _) => Standing::Missing,
            (true, false) => Standing::Backed,
            (true, true) => Standing::Kept,
        }
    }

    /// Calls `visit` with each page that overlaps a block. Returns whether the block is in a range.
    pub(super) fn each_page(
        &self,
        pages: &mut Pages,
        address: u64,
        size: u64,
        mut visit: impl FnMut(&mut Pages, PageId),
    ) -> bool {
        let Some(position) = self.find(address) else { return false };
        self.list[position].each_part(address, size, |_, first, last| {
            (first..=last).for_each(|id| visit(pages, id));
        });
        true
    }

    /// The pages of mapped slots of more than 2 MiB, which are those of large blocks.
    pub(super) fn large_pages(&self) -> Vec<PageId> {
        let large = self.list.iter().filter(|range| range.slot > PAGE);
        let slots = large.flat_map(|range| &range.slots).filter(|slot| slot.is_mapped());
        slots.flat_map(|slot| slot.first..slot.first + slot.count).collect()
    }
}
