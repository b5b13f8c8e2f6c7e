//! Blocks come and go: which pages get memory, and from where.

use super::backing::{Mark, PageBacking};
use super::idle::Idle;
use super::report::{Stats, Unbacked};
use super::slots::{PageId, Pages, Ranges};
use crate::pool::{PAGE, Piece, Timeout};

/// Pages are about this fraction of the live memory, so that partly used pages cost little of it.
const PAGES_PER_LIVE: u64 = 1 << 7;
/// Memory may exceed the peak of live memory by this fraction before pages move.
const ALLOWANCE: u64 = 1 << 8;

/// Limits of the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of host memory that the commit rule counts on. If another process takes device memory that the rule counted on,
    /// blocks get host memory beyond this, and no more slots are mapped until they are freed.
    pub host_quota: u64,
}

/// The pages of one device.
#[derive(Clone, Debug, Default)]
pub struct Paged {
    settings: Settings,
    pub(super) ranges: Ranges,
    pub(super) pages: Pages,
    idle: Idle,
    pub(super) stats: Stats,
    /// Pages of the current block that have no memory yet.
    missing: Vec<PageId>,
    /// The longest wait that timed out during the current call. No other is that long: a block has many pages.
    pub(super) timed_out: Option<Timeout>,
}

impl Paged {
    /// No ranges, no pages.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// The figures.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The allocator reserved a range of addresses.
    pub fn reserve(&mut self, address: u64, size: u64) {
        self.ranges.add(address, size);
    }

    /// The allocator gives a range back. Memory of slots that could not be released before is released now. Returns
    /// whether the range was known and is empty.
    pub fn unreserve(&mut self, backing: &mut impl PageBacking, address: u64) -> bool {
        self.timed_out = None;
        for (slot, first, count) in self.ranges.returned(address) {
            for id in first..first + count {
                self.release(backing, id, Timeout::Wait);
            }
            self.ranges.unmap(&mut self.pages, slot);
        }
        self.ranges.remove(address)
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
    pub fn each_backed(&mut self, address: u64, size: u64, mut visit: impl FnMut(u64, u64)) {
        self.ranges.each_page(&mut self.pages, address, size, |pages, id| {
            let page = pages.get(id);
            if page.handle.is_some() {
                visit(page.address, page.size);
            }
        });
    }

    /// The commit rule: whether the allocator may map `size` more bytes while the device can give `free`.
    pub fn may_map(&self, size: u64, free: u64) -> bool {
        let held = self.stats.physical.saturating_add(free).saturating_add(self.settings.host_quota);
        self.stats.mapped.saturating_add(size) <= held && self.stats.on_host <= self.settings.host_quota
    }

    /// The allocator mapped a slot. It gets no memory yet, unless its range is exempt. Returns whether the slot is valid.
    pub fn map(&mut self, backing: &mut impl PageBacking, address: u64, size: u64) -> bool {
        let page = self.page_size(size);
        let Some((position, first, count)) = self.ranges.map(&mut self.pages, address, size, page) else {
            return false;
        };
        self.stats.mapped += size;
        if self.ranges.get_mut(position).is_exempt {
            self.keep(backing, first..first + count);
        }
        true
    }

    /// The allocator unmapped a slot: its memory returns to the device. Returns whether the slot was mapped.
    pub fn unmap(&mut self, backing: &mut impl PageBacking, address: u64) -> bool {
        let Some((first, count)) = self.ranges.slot(address) else { return false };
        self.timed_out = None;
        let mark = backing.mark();
        for id in first..first + count {
            let page = self.pages.get_mut(id);
            // Blocks and pins in a slot that is given up have no meaning any more.
            (page.blocks, page.is_pinned) = (0, false);
            let size = page.size;
            self.stats.mapped -= size;
            if page.handle.is_some() && !page.is_idle {
                page.freed = mark;
                self.stats.idle += size;
                self.idle.push(&mut self.pages, id);
            }
            self.release(backing, id, Timeout::Wait);
        }
        self.ranges.unmap(&mut self.pages, address);
        true
    }

    /// A block was placed: its pages get memory.
    pub fn take(&mut self, backing: &mut impl PageBacking, address: u64, size: u64) -> Result<(), Unbacked> {
        self.stats.live += size;
        self.stats.peak_live = self.stats.peak_live.max(self.stats.live);
        let mut missing = std::mem::take(&mut self.missing);
        let (idle, stats) = (&mut self.idle, &mut self.stats);
        self.ranges.each_page(&mut self.pages, address, size, |pages, id| {
            if pages.get(id).is_idle {
                idle.remove(pages, id);
                stats.idle -= pages.get(id).size;
            }
            let page = pages.get_mut(id);
            page.blocks += 1;
            if page.handle.is_none() {
                missing.push(id);
            }
        });
        let mut unbacked = 0;
        self.timed_out = None;
        for id in missing.drain(..) {
            if !self.back(backing, id) {
                unbacked += self.pages.get(id).size;
            }
        }
        self.missing = missing;
        if unbacked == 0 { Ok(()) } else { Err(Unbacked { bytes: unbacked }) }
    }

    /// A block was freed: pages without a block become idle.
    pub fn give(&mut self, backing: &mut impl PageBacking, address: u64, size: u64) {
        self.stats.live = self.stats.live.saturating_sub(size);
        let mut mark = None;
        let (idle, stats) = (&mut self.idle, &mut self.stats);
        self.ranges.each_page(&mut self.pages, address, size, |pages, id| {
            let page = pages.get_mut(id);
            page.blocks = page.blocks.saturating_sub(1);
            if page.blocks == 0 && page.handle.is_some() && !page.is_pinned && !page.is_idle {
                page.freed = *mark.get_or_insert_with(|| backing.mark());
                stats.idle += page.size;
                idle.push(pages, id);
            }
        });
    }

    /// All pages of the range keep their memory from now on, and get it now: a CUDA graph may use any of it.
    pub fn exempt(&mut self, backing: &mut impl PageBacking, address: u64) {
        let Some(position) = self.ranges.find(address) else { return };
        if !std::mem::replace(&mut self.ranges.get_mut(position).is_exempt, true) {
            let pages = self.ranges.all_pages(position);
            self.keep(backing, pages);
        }
    }

    /// The memory under a block stays where it is from now on, as others know it by its handle.
    pub fn pin(&mut self, backing: &mut impl PageBacking, address: u64, size: u64) {
        let mut ids = Vec::new();
        self.ranges.each_page(&mut self.pages, address, size, |_, id| ids.push(id));
        self.keep(backing, ids);
    }

    pub(super) fn keep(&mut self, backing: &mut impl PageBacking, pages: impl IntoIterator<Item = PageId>) {
        self.timed_out = None;
        for id in pages {
            self.not_idle(id);
            self.pages.get_mut(id).is_pinned = true;
            if self.pages.get(id).handle.is_none() {
                self.back(backing, id);
            }
        }
    }

    /// The size of the pages of a new slot: a divisor of its size, larger for larger jobs.
    fn page_size(&self, slot: u64) -> u64 {
        let wanted = (self.stats.peak_live / PAGES_PER_LIVE).max(PAGE);
        let divisors = (1..=slot / PAGE).map(|count| (slot / count, count));
        let mut fitting = divisors.filter(|&(page, count)| page * count == slot && page % PAGE == 0);
        fitting.find(|&(page, _)| page <= wanted).map_or(slot, |(page, _)| page)
    }

    /// Gives memory to a page. Returns whether it has some now.
    fn back(&mut self, backing: &mut impl PageBacking, id: PageId) -> bool {
        let size = self.pages.get(id).size;
        let goal = self.stats.peak_live + self.stats.peak_live / ALLOWANCE;
        let is_beyond = self.stats.physical + size > goal;
        if is_beyond && self.back_with_idle(backing, id, Timeout::WaitBriefly) {
            return true;
        }
        self.back_with_new(backing, id)
            || self.back_with_idle(backing, id, Timeout::Wait)
            || self.back_with_host(backing, id)
    }

    fn back_with_new(&mut self, backing: &mut impl PageBacking, id: PageId) -> bool {
        let size = self.pages.get(id).size;
        let Ok(handle) = backing.create(size) else { return false };
        self.stats.created += 1;
        self.stats.physical += size;
        self.stats.peak_physical = self.stats.peak_physical.max(self.stats.physical);
        self.place(backing, id, Piece { handle, size }, false)
    }

    fn back_with_host(&mut self, backing: &mut impl PageBacking, id: PageId) -> bool {
        let size = self.pages.get(id).size;
        let Ok(handle) = backing.create_on_host(size) else { return false };
        self.stats.created += 1;
        self.stats.on_host += size;
        self.place(backing, id, Piece { handle, size }, true)
    }

    /// Uses memory of idle pages: one of the same size moves; otherwise idle pages are released until a new one fits.
    fn back_with_idle(&mut self, backing: &mut impl PageBacking, id: PageId, timeout: Timeout) -> bool {
        let size = self.pages.get(id).size;
        if let Some(donor) = self.idle.oldest_of(size) {
            if !self.finish(backing, self.pages.get(donor).freed, timeout) {
                return false;
            }
            return match self.lift(backing, donor) {
                Some((piece, is_on_host)) => {
                    self.stats.moved += 1;
                    self.place(backing, id, piece, is_on_host)
                }
                None => false,
            };
        }
        let mut released = 0;
        while released < size {
            let Some(donor) = self.idle.oldest(&self.pages) else { break };
            if !self.release(backing, donor, timeout) {
                break;
            }
            released += self.pages.get(donor).size;
        }
        released > 0 && self.back_with_new(backing, id)
    }

    /// Maps a handle under a page; if that fails, the handle is released.
    fn place(&mut self, backing: &mut impl PageBacking, id: PageId, piece: Piece, is_on_host: bool) -> bool {
        if backing.map(self.pages.get(id).address, piece).is_err() {
            self.forget(backing, piece, is_on_host);
            return false;
        }
        let page = self.pages.get_mut(id);
        page.handle = Some(piece.handle);
        page.is_on_host = is_on_host;
        true
    }

    /// Takes the memory away from an idle page whose work has finished.
    fn lift(&mut self, backing: &mut impl PageBacking, id: PageId) -> Option<(Piece, bool)> {
        let page = *self.pages.get(id);
        let piece = Piece { handle: page.handle?, size: page.size };
        backing.unmap(page.address, piece).ok()?;
        self.not_idle(id);
        self.pages.get_mut(id).handle = None;
        Some((piece, page.is_on_host))
    }

    /// Returns the memory of an idle page to the device. Returns whether it did.
    fn release(&mut self, backing: &mut impl PageBacking, id: PageId, timeout: Timeout) -> bool {
        let page = *self.pages.get(id);
        if page.handle.is_none() || !self.finish(backing, page.freed, timeout) {
            return false;
        }
        match self.lift(backing, id) {
            Some((piece, is_on_host)) => {
                self.forget(backing, piece, is_on_host);
                true
            }
            None => false,
        }
    }

    pub(super) fn forget(&mut self, backing: &mut impl PageBacking, piece: Piece, is_on_host: bool) {
        // A handle that cannot be released is lost either way; the device reports it as in use.
        let _ = backing.release(piece);
        self.stats.released += 1;
        if is_on_host {
            self.stats.on_host -= piece.size;
        } else {
            self.stats.physical -= piece.size;
        }
    }

    /// Whether all work before a mark has finished, after waiting for it if necessary.
    pub(super) fn finish(&mut self, backing: &mut impl PageBacking, mark: Mark, timeout: Timeout) -> bool {
        if backing.passed() >= mark {
            return true;
        }
        let wont_help =
            matches!((self.timed_out, timeout), (Some(Timeout::Wait), _) | (Some(_), Timeout::WaitBriefly));
        if timeout == Timeout::DoNotWait || wont_help {
            return false;
        }
        self.stats.waits += 1;
        let has_passed = backing.wait(mark, timeout).is_ok();
        if !has_passed {
            self.timed_out = Some(timeout);
        }
        has_passed
    }

    pub(super) fn not_idle(&mut self, id: PageId) {
        if self.pages.get(id).is_idle {
            self.idle.remove(&mut self.pages, id);
            self.stats.idle -= self.pages.get(id).size;
        }
    }
}
