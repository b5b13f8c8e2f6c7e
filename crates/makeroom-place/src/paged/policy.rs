//! Slots and blocks come and go: which pages need memory.
//!
//! An operation changes the tables at once, and then gets or releases memory in a step that may be repeated after a wait.

use super::backing::PageBacking;
use super::idle::Idle;
use super::pause::{Attempt, Pause};
use super::report::Stats;
use super::slots::{Ranges, Standing};
use super::table::{PageId, Pages};
use crate::pool::{Handle, PAGE, Timeout};

/// Pages are about this fraction of the live memory, so that partly used pages cost little of it.
const PAGES_PER_LIVE: u64 = 1 << 7;

/// Blocks up to this size are PyTorch's small ones, which are in segments of their own.
const LARGE: u64 = 1 << 20;

/// Limits of the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of host memory that the commit rule counts on. If another process takes device memory that the rule counted on,
    /// blocks get host memory beyond this, and no more slots are mapped until they are freed.
    pub host_quota: u64,
}

/// The pages of one device. What every report uses comes first, in few cache lines.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Paged {
    pub(super) ranges: Ranges,
    pub(super) stats: Stats,
    pub(super) pages: Pages,
    /// Memory of large blocks stays where it is: a device may know it by its physical addresses.
    keeps_large: bool,
    pub(super) idle: Idle,
    settings: Settings,
    /// Bytes of the handles that moved.
    pub(super) moved_bytes: u64,
    /// Pages of the current step that have no memory yet.
    unbacked: Vec<PageId>,
}

impl Paged {
    /// No ranges, no pages.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// The figures.
    #[inline]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The allocator reserved a range of addresses.
    pub fn reserve(&mut self, address: u64, size: u64) {
        self.ranges.add(address, size);
    }

    /// A step: the allocator gives a range back, and memory of slots that could not be released before is released now.
    /// Returns whether the range was known and is empty.
    pub fn release_range(
        &mut self,
        backing: &mut impl PageBacking,
        attempt: Attempt,
        address: u64,
    ) -> Result<bool, Pause> {
        for slot in self.ranges.returned(address) {
            self.release_slot(backing, attempt, slot)?;
        }
        Ok(self.ranges.remove(address))
    }

    /// Whether an address is in a range.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges.find(address).is_some()
    }

    /// Start and size of the mapped slot that contains an address.
    pub fn slot(&self, address: u64) -> Option<(u64, u64)> {
        let (first, count) = self.ranges.slot(address)?;
        let page = self.pages.get(first);
        Some((page.address, page.size * u64::from(count)))
    }

    /// Calls `visit` with the address and size of each page that overlaps a range of addresses and has memory.
    pub fn each_backed(&self, address: u64, size: u64, mut visit: impl FnMut(u64, u64)) {
        self.ranges.each_part(address, size, |first, last| {
            for id in (first..=last).filter(|&id| self.pages.state(id).has_memory()) {
                let page = self.pages.get(id);
                visit(page.address, page.size);
            }
        });
    }

    /// The commit rule: whether the allocator may map `size` more bytes while the device can give `free`.
    pub fn may_map(&self, size: u64, free: u64) -> bool {
        let held = self.stats.physical.saturating_add(free).saturating_add(self.settings.host_quota);
        self.stats.mapped.saturating_add(size) <= held && self.stats.on_host <= self.settings.host_quota
    }

    /// The allocator mapped a slot. Returns whether its pages need memory now, because its range is exempt; `None` if the
    /// slot is not valid.
    pub fn map_slot(&mut self, address: u64, size: u64) -> Option<bool> {
        let page = self.page_size(size);
        let position = self.ranges.map(&mut self.pages, address, size, page)?;
        self.stats.mapped += size;
        self.stats.peak_mapped = self.stats.peak_mapped.max(self.stats.mapped);
        let is_exempt = self.ranges.get_mut(position).is_exempt;
        if is_exempt {
            self.pin_pages(address, size);
        }
        Some(is_exempt)
    }

    /// The allocator unmapped a slot: its pages become idle. Returns whether the slot was mapped.
    pub fn give_up_slot(&mut self, backing: &mut impl PageBacking, address: u64) -> bool {
        let Some((first, count)) = self.ranges.slot(address) else { return false };
        let mark = backing.mark();
        for id in first..first + count {
            let state = self.pages.state_mut(id);
            let was_idle = state.is_idle();
            // Blocks and pins in a slot that is given up have no meaning any more.
            (state.blocks, state.is_pinned) = (0, false);
            if !was_idle {
                state.freed = mark;
            }
            self.stats.mapped -= self.pages.get(id).size;
        }
        self.idle.became_idle();
        self.ranges.give_up(address);
        true
    }

    /// A step: the memory of a slot that was given up returns to the device, unless the allocator has mapped it again.
    pub fn release_slot(
        &mut self,
        backing: &mut impl PageBacking,
        attempt: Attempt,
        address: u64,
    ) -> Result<(), Pause> {
        let Some((first, count)) = self.ranges.returned_slot(address) else { return Ok(()) };
        for id in first..first + count {
            self.release(backing, attempt, id, Timeout::Wait)?;
        }
        self.ranges.forget(&mut self.pages, address);
        Ok(())
    }

    /// The ranges whose mapped slots all have memory and keep it; the policy does not need to track their blocks.
    pub fn kept_ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.kept()
    }

    /// Whether a block needs memory, and whether the policy needs to know it.
    #[inline]
    pub fn standing(&self, address: u64, size: u64) -> Standing {
        self.ranges.standing(&self.pages, address, size)
    }

    /// Raises peak live memory to `live`, as counted by the allocator, unless it is higher already.
    pub fn set_peak_live(&mut self, live: u64) {
        self.stats.peak_live = self.stats.peak_live.max(live);
    }

    /// Gives memory to a page.
    pub(super) fn set_memory(&mut self, id: PageId, handle: Handle, is_on_host: bool) {
        self.pages.set_memory(id, handle, is_on_host);
        self.ranges.count_missing(self.pages.get(id).address, -1);
    }

    /// Takes a page's memory away.
    pub(super) fn take_memory(&mut self, id: PageId) -> Option<Handle> {
        let handle = self.pages.take_memory(id)?;
        self.ranges.count_missing(self.pages.get(id).address, 1);
        Some(handle)
    }

    /// A block was placed: calls [`Self::add_block`] and counts its bytes. Returns whether some of its pages need memory;
    /// `None` if it is not in a range.
    pub fn place_block(&mut self, address: u64, size: u64) -> Option<bool> {
        let needs_memory = self.add_block(address, size)?;
        self.stats.live += size;
        self.set_peak_live(self.stats.live);
        Some(needs_memory)
    }

    /// A block was placed: its pages have one more, but it is not counted. Returns whether some of its pages need memory;
    /// `None` if it is not in a range.
    pub fn add_block(&mut self, address: u64, size: u64) -> Option<bool> {
        let mut needs_memory = false;
        let is_kept = self.keeps_large && size > LARGE;
        let is_in_range = self.ranges.each_part(address, size, |first, last| {
            for state in self.pages.states_mut(first, last) {
                state.blocks += 1;
                state.is_pinned |= is_kept;
                needs_memory |= !state.has_memory();
            }
        });
        is_in_range.then_some(needs_memory)
    }

    /// A step: pages without memory in a range of addresses get it. Returns the bytes of those that cannot have any.
    pub fn back_pages(
        &mut self,
        backing: &mut impl PageBacking,
        attempt: Attempt,
        address: u64,
        size: u64,
    ) -> Result<u64, Pause> {
        let mut missing = std::mem::take(&mut self.unbacked);
        missing.clear();
        self.ranges.each_part(address, size, |first, last| {
            missing.extend((first..=last).filter(|&id| !self.pages.state(id).has_memory()));
        });
        let unbacked = missing.iter().try_fold(0, |unbacked, &id| {
            let is_backed = self.back(backing, attempt, id)?;
            Ok(unbacked + if is_backed { 0 } else { self.pages.get(id).size })
        });
        self.unbacked = missing;
        unbacked
    }

    /// A block was freed: calls [`Self::remove_block`] and stops counting its bytes. Nothing happens if it is not in a range.
    pub fn give(&mut self, backing: &mut impl PageBacking, address: u64, size: u64) {
        if self.remove_block(backing, address, size) {
            self.stats.live = self.stats.live.saturating_sub(size);
        }
    }

    /// A block was freed: pages without a block become idle, unless their range is exempt. It stays counted. Returns whether it is
    /// in a range.
    pub fn remove_block(&mut self, backing: &mut impl PageBacking, address: u64, size: u64) -> bool {
        let Some(position) = self.ranges.find(address) else { return false };
        if self.ranges.get(position).is_exempt {
            return true;
        }
        let mark = backing.mark();
        self.ranges.each_part_of(position, address, size, |first, last| {
            for state in self.pages.states_mut(first, last) {
                state.blocks = state.blocks.saturating_sub(1);
                // Has no meaning while the page has other blocks; freeing those overwrites it.
                state.freed = mark;
            }
        });
        self.idle.became_idle();
        true
    }

    /// All pages of a range keep their memory from now on, because a CUDA graph may use any of it. Returns the addresses
    /// and bytes that need memory now; `None` if the range was exempt before.
    pub fn exempt_range(&mut self, address: u64) -> Option<(u64, u64)> {
        let range = self.ranges.get_mut(self.ranges.find(address)?);
        if std::mem::replace(&mut range.is_exempt, true) {
            return None;
        }
        let (start, size) = (range.address, range.size);
        self.pin_pages(start, size);
        Some((start, size))
    }

    /// From now on, memory under large blocks stays where it is, also after they are freed: a network or storage device may
    /// have it registered by its physical addresses, without a call that shows it. All memory that large blocks have or
    /// had may be registered: such a registration may also be used for later blocks at the same addresses.
    pub fn keep_large(&mut self) {
        if std::mem::replace(&mut self.keeps_large, true) {
            return;
        }
        for id in self.ranges.large_pages() {
            let state = self.pages.state_mut(id);
            state.is_pinned |= state.blocks > 0 || state.has_memory();
        }
    }

    /// The memory under addresses stays where it is from now on, as others know it by its handle.
    pub fn pin_pages(&mut self, address: u64, size: u64) {
        self.ranges.each_part(address, size, |first, last| {
            self.pages.states_mut(first, last).iter_mut().for_each(|state| state.is_pinned = true);
        });
    }

    /// The size of the pages of a new slot: a divisor of its size, larger for larger jobs.
    fn page_size(&self, slot: u64) -> u64 {
        let wanted = (self.stats.peak_live / PAGES_PER_LIVE).max(PAGE);
        let divisors = (1..=slot / PAGE).map(|count| (slot / count, count));
        let mut fitting = divisors.filter(|&(page, count)| page * count == slot && page % PAGE == 0);
        fitting.find(|&(page, _)| page <= wanted).map_or(slot, |(page, _)| page)
    }
}
