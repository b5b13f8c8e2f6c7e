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

/// A mapped slot.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Its first page; `NO_PAGE` if the slot is not mapped.
    first: PageId,
    /// How many pages it has.
    count: u32,
    /// The allocator gave it up, but some of its memory could not be released.
    is_returned: bool,
}

impl Slot {
    fn is_mapped(&self) -> bool {
        self.first != NO_PAGE && !self.is_returned
    }
}

const UNMAPPED: Slot = Slot { first: NO_PAGE, count: 0, is_returned: false };

/// A reserved range of addresses.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) size: u64,
    /// The size of its slots; 0 until one is mapped.
    slot: u64,
    slots: Vec<Slot>,
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
        let range = Range { address, size, slot: 0, slots: Vec::new(), is_exempt: false };
        self.list.insert(at, range);
    }

    pub(super) fn find(&self, address: u64) -> Option<usize> {
        let at = self.list.partition_point(|range| range.address <= address).checked_sub(1)?;
        self.list[at].contains(address).then_some(at)
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
        *slot = Slot { first, count, is_returned: false };
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
        *slot = Slot { first, count: 1, is_returned: false };
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
            *slot = UNMAPPED;
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
        let range = &self.list[position];
        if range.slot == 0 {
            return true;
        }
        let end = address.saturating_add(size.max(1)).min(range.address + range.size);
        let mut at = address;
        while at < end {
            let index = range.index(at);
            let slot_address = range.address + index as u64 * range.slot;
            let slot_end = slot_address + range.slot;
            if let Some(slot) = range.slots.get(index).filter(|slot| slot.is_mapped()) {
                let page = range.slot / u64::from(slot.count);
                let (from, to) = (at - slot_address, end.min(slot_end) - 1 - slot_address);
                for number in from / page..=to / page {
                    visit(pages, slot.first + number as u32);
                }
            }
            at = slot_end;
        }
        true
    }

    /// The pages of mapped slots of more than 2 MiB, which are those of large blocks.
    pub(super) fn large_pages(&self) -> Vec<PageId> {
        let large = self.list.iter().filter(|range| range.slot > PAGE);
        let slots = large.flat_map(|range| &range.slots).filter(|slot| slot.is_mapped());
        slots.flat_map(|slot| slot.first..slot.first + slot.count).collect()
    }
}
