//! Ranges of addresses and their slots, by address.

use super::table::{PageId, Pages};
use crate::pool::PAGE;

/// No page.
const NO_PAGE: PageId = PageId::MAX;

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

/// A reserved range of addresses: the part that every report reads. Its slots are stored separately, so that two ranges fit in
/// one cache line.
#[derive(Clone, Debug)]
#[repr(align(32))]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) size: u64,
    /// Pages without memory in all of its slots.
    missing: u32,
    /// All of its pages keep their memory.
    pub(super) is_exempt: bool,
}

impl Range {
    fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.address) < self.size
    }

    /// The index of the 2 MiB unit that contains an address.
    fn unit(&self, address: u64) -> u32 {
        ((address - self.address) / PAGE) as u32
    }
}

/// The slots of a range, up to the last that was ever mapped. All have the same size.
#[derive(Clone, Debug, Default)]
struct Slots {
    list: Vec<Slot>,
    /// Number of 2 MiB units in a slot, which fits in 16 bits; 0 until a slot is mapped.
    units: u32,
    /// 2⁶⁴ / units, rounded up. The upper half of its product with a 32-bit number is the exact quotient, and multiplying is
    /// faster than dividing. Not used if `units` is 1.
    reciprocal: u64,
}

impl Slots {
    /// Sets the size of the slots, each time that one is mapped.
    fn set_units(&mut self, units: u32) {
        self.units = units;
        self.reciprocal = (u64::MAX / u64::from(units)).wrapping_add(1);
    }

    fn bytes(&self) -> u64 {
        u64::from(self.units) * PAGE
    }

    /// Divides by the units in a slot.
    fn divide(&self, number: u32) -> u32 {
        if self.units == 1 {
            return number;
        }
        ((u128::from(self.reciprocal) * u128::from(number)) >> 64) as u32
    }

    /// The slot at a unit of the range.
    fn index(&self, unit: u32) -> usize {
        self.divide(unit) as usize
    }

    /// Calls `visit` with each mapped slot that overlaps the units `from..=to` of the range, and with the first and last of its
    /// pages that overlap them.
    #[inline]
    fn each_part(&self, from: u32, to: u32, mut visit: impl FnMut(&Slot, PageId, PageId)) {
        let (first, last) = (self.divide(from), self.divide(to));
        for (index, slot) in (first..=last).zip(self.list.iter().skip(first as usize)) {
            if !slot.is_mapped() {
                continue;
            }
            // Every page of a slot has the same whole number of units.
            let page = |unit| self.divide((unit - index * self.units) * slot.count);
            let from = if index == first { page(from) } else { 0 };
            let to = if index == last { page(to) } else { slot.count - 1 };
            visit(slot, slot.first + from, slot.first + to);
        }
    }
}

/// All ranges, by ascending address.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct Ranges {
    list: Vec<Range>,
    slots: Vec<Slots>,
}

impl Ranges {
    /// Adds a range that overlaps no other.
    pub(super) fn add(&mut self, address: u64, size: u64) {
        let at = self.list.partition_point(|range| range.address < address);
        self.list.insert(at, Range { address, size, missing: 0, is_exempt: false });
        self.slots.insert(at, Slots::default());
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
        let is_empty = self.slots[at].list.iter().all(|slot| slot.first == NO_PAGE);
        if is_empty {
            self.list.remove(at);
            self.slots.remove(at);
        }
        is_empty
    }

    /// The addresses of the slots of a range that the allocator gave up and that still have memory.
    pub(super) fn returned(&self, address: u64) -> Vec<u64> {
        let Some(at) = self.list.iter().position(|range| range.address == address) else { return Vec::new() };
        let slots = &self.slots[at];
        let returned = slots.list.iter().enumerate().filter(|(_, slot)| slot.is_returned);
        returned.map(|(index, _)| address + index as u64 * slots.bytes()).collect()
    }

    /// Divides a slot into pages, and returns the position of its range. `None` if it is not in a range, not aligned like the others, or mapped already.
    pub(super) fn map(&mut self, pages: &mut Pages, address: u64, size: u64, page: u64) -> Option<usize> {
        let position = self.find(address)?;
        let range = &mut self.list[position];
        let offset = address - range.address;
        let slots = &mut self.slots[position];
        let units = u32::from(u16::try_from(size / PAGE).ok()?);
        let is_like_others = slots.units == 0 || slots.units == units;
        let is_whole = size > 0 && size.is_multiple_of(PAGE) && offset.is_multiple_of(size);
        if !is_like_others || !is_whole || range.size - offset < size {
            return None;
        }
        slots.set_units(units);
        // Small blocks are half of all blocks and hold little memory, and their slots cannot be divided. So these slots get
        // memory when they are mapped, as they would without paging, and their blocks cost almost no time.
        range.is_exempt |= size <= PAGE;
        let index = slots.index(range.unit(address));
        if slots.list.len() <= index {
            slots.list.resize(index + 1, UNMAPPED);
        }
        let slot = &mut slots.list[index];
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

    /// The slot that contains an address; it may not be mapped.
    fn slot_at(&self, address: u64) -> Option<&Slot> {
        let position = self.find(address)?;
        let slots = &self.slots[position];
        slots.list.get(slots.index(self.list[position].unit(address)))
    }

    fn slot_at_mut(&mut self, address: u64) -> Option<(&mut Slot, &mut Range)> {
        let position = self.find(address)?;
        let (range, slots) = (&mut self.list[position], &mut self.slots[position]);
        let index = slots.index(range.unit(address));
        Some((slots.list.get_mut(index)?, range))
    }

    /// A mapped slot becomes one page, which has no memory yet.
    pub(super) fn merge(&mut self, pages: &mut Pages, address: u64) -> Option<PageId> {
        let (slot, range) = self.slot_at_mut(address)?;
        let (start, size) =
            (pages.get(slot.first).address, pages.get(slot.first).size * u64::from(slot.count));
        pages.remove(slot.first, slot.count);
        let first = pages.add(start, size, 1);
        range.missing = range.missing - slot.missing + 1;
        *slot = Slot { first, count: 1, missing: 1, is_returned: false };
        Some(first)
    }

    /// The pages of a slot.
    pub(super) fn slot(&self, address: u64) -> Option<(PageId, u32)> {
        let slot = self.slot_at(address)?;
        slot.is_mapped().then_some((slot.first, slot.count))
    }

    /// The pages of a slot that the allocator gave up and that still has memory.
    pub(super) fn returned_slot(&self, address: u64) -> Option<(PageId, u32)> {
        let slot = self.slot_at(address)?;
        slot.is_returned.then_some((slot.first, slot.count))
    }

    /// The allocator gives up a slot. It is forgotten with [`Self::forget`].
    pub(super) fn give_up(&mut self, address: u64) {
        if let Some((slot, _)) = self.slot_at_mut(address) {
            slot.is_returned = true;
        }
    }

    /// Forgets a slot that was given up, and its pages, unless some still have memory.
    pub(super) fn forget(&mut self, pages: &mut Pages, address: u64) {
        let Some((slot, range)) = self.slot_at_mut(address) else { return };
        if (slot.first..slot.first + slot.count).all(|id| !pages.state(id).has_memory()) {
            pages.remove(slot.first, slot.count);
            range.missing -= slot.missing;
            *slot = UNMAPPED;
        }
    }

    /// A page of the slot that contains an address got memory (−1) or lost it (+1).
    pub(super) fn count_missing(&mut self, address: u64, change: i32) {
        let Some((slot, range)) = self.slot_at_mut(address) else { return };
        slot.missing = slot.missing.saturating_add_signed(change);
        range.missing = range.missing.saturating_add_signed(change);
    }

    /// Addresses and sizes of the ranges of 2 MiB slots whose pages all have memory. Larger slots can become one handle while
    /// a block is placed, so captured ranges are not among them.
    pub(super) fn kept(&self) -> impl Iterator<Item = (u64, u64)> {
        let small = self.list.iter().zip(&self.slots).filter(|(_, slots)| slots.units == 1);
        let kept = small.filter(|(range, _)| range.is_exempt && range.missing == 0);
        kept.map(|(range, _)| (range.address, range.size))
    }

    /// Whether a block needs memory, and whether it matters to the policy. Most ranges and slots have all of their memory,
    /// and then their pages are not looked at.
    #[inline]
    pub(super) fn standing(&self, pages: &Pages, address: u64, size: u64) -> Standing {
        let Some(position) = self.find(address) else { return Standing::Outside };
        let range = &self.list[position];
        let mut is_backed = true;
        if range.missing > 0 {
            self.each_part_in(position, address, size, |slot, first, last| {
                is_backed &= slot.missing == 0 || (first..=last).all(|id| pages.state(id).has_memory());
            });
        }
        match (is_backed, range.is_exempt) {
            (false, _) => Standing::Missing,
            (true, false) => Standing::Backed,
            (true, true) => Standing::Kept,
        }
    }

    /// For each mapped slot that a block overlaps, calls `visit` with the first and last overlapping page. Returns whether the
    /// block is in a range.
    #[inline]
    pub(super) fn each_part(&self, address: u64, size: u64, mut visit: impl FnMut(PageId, PageId)) -> bool {
        let Some(position) = self.find(address) else { return false };
        self.each_part_of(position, address, size, &mut visit);
        true
    }

    /// The same in a range that is known.
    #[inline]
    pub(super) fn each_part_of(
        &self,
        position: usize,
        address: u64,
        size: u64,
        mut visit: impl FnMut(PageId, PageId),
    ) {
        self.each_part_in(position, address, size, |_, first, last| visit(first, last));
    }

    #[inline]
    fn each_part_in(
        &self,
        position: usize,
        address: u64,
        size: u64,
        visit: impl FnMut(&Slot, PageId, PageId),
    ) {
        let range = &self.list[position];
        let end = address.saturating_add(size.max(1)).min(range.address + range.size);
        self.slots[position].each_part(range.unit(address), range.unit(end - 1), visit);
    }

    /// The pages of mapped slots of more than 2 MiB, which are those of large blocks.
    pub(super) fn large_pages(&self) -> Vec<PageId> {
        let large = self.slots.iter().filter(|slots| slots.units > 1);
        let slots = large.flat_map(|slots| &slots.list).filter(|slot| slot.is_mapped());
        slots.flat_map(|slot| slot.first..slot.first + slot.count).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Slots;

    proptest! {
        #[test]
        fn a_product_with_the_reciprocal_is_the_quotient(units in 1_u32.., number: u32) {
            let mut slots = Slots::default();
            slots.set_units(units);
            for number in [number, number / units * units, (number / units * units).wrapping_sub(1), u32::MAX] {
                prop_assert_eq!(slots.divide(number), number / units);
            }
        }
    }
}
