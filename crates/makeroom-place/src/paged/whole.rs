//! Slots that become one handle, because other processes or libraries know the memory by its handle.

use super::backing::{Mark, PageBacking};
use super::pause::{Attempt, Pause};
use super::policy::Paged;
use super::slots::PageId;
use crate::pool::{Handle, Piece, Timeout};

/// A slot that becomes one handle, over all repetitions of the step.
#[derive(Debug, Default)]
pub struct Whole {
    /// All work before it must finish before the copy begins.
    before: Option<Mark>,
    copy: Option<Copy>,
}

/// The copy of a slot's contents.
#[derive(Debug)]
struct Copy {
    whole: Piece,
    parts: Vec<(u64, Piece)>,
    /// All of its work is before this mark.
    end: Mark,
}

impl Paged {
    /// The memory of the slot that contains an address becomes one handle with the same contents, and stays where it is
    /// from now on. Returns the handle; if it cannot be had, nothing has changed.
    pub fn make_whole(
        &mut self,
        backing: &mut impl PageBacking,
        attempt: Attempt,
        address: u64,
        state: &mut Whole,
    ) -> Result<Option<Handle>, Pause> {
        if state.copy.is_none() {
            match self.ranges.slot(address) {
                None => return Ok(None),
                Some((only, 1)) => return self.keep_one(backing, attempt, only),
                Some((first, count)) => {
                    if state.before.is_none() {
                        self.hold(first, count);
                    }
                    let before = *state.before.get_or_insert_with(|| backing.mark());
                    let can_copy = self.finish(backing, attempt, before, Timeout::Wait)?;
                    state.copy = if can_copy { self.begin_copy(backing, address) } else { None };
                }
            }
        }
        let Some(end) = state.copy.as_ref().map(|copy| copy.end) else {
            self.unhold(backing, address);
            return Ok(None);
        };
        let is_finished = self.finish(backing, attempt, end, Timeout::Wait)?;
        let Some(copy) = state.copy.take() else { return Ok(None) };
        let handle = self.end_copy(backing, address, &copy, is_finished);
        if handle.is_none() {
            self.unhold(backing, address);
        }
        Ok(handle)
    }

    fn keep_one(
        &mut self,
        backing: &mut impl PageBacking,
        attempt: Attempt,
        id: PageId,
    ) -> Result<Option<Handle>, Pause> {
        self.not_idle(id);
        self.pages.get_mut(id).is_pinned = true;
        if self.pages.get(id).handle.is_none() {
            self.back(backing, attempt, id)?;
        }
        Ok(self.pages.get(id).handle)
    }

    /// The memory of a slot does not move while it is copied.
    fn hold(&mut self, first: PageId, count: u32) {
        for id in first..first + count {
            self.not_idle(id);
            self.pages.get_mut(id).copies += 1;
        }
    }

    fn unhold(&mut self, backing: &mut impl PageBacking, address: u64) {
        let Some((first, count)) = self.ranges.slot(address) else { return };
        let mark = backing.mark();
        for id in first..first + count {
            let page = self.pages.get_mut(id);
            page.copies = page.copies.saturating_sub(1);
            self.idle_if_unused(id, mark);
        }
    }

    /// The handles of a slot, and where each is mapped.
    fn parts(&self, address: u64) -> Vec<(u64, Piece)> {
        let (first, count) = self.ranges.slot(address).unwrap_or((0, 0));
        let pages = (first..first + count).map(|id| self.pages.get(id));
        pages
            .filter_map(|page| Some((page.address, Piece { handle: page.handle?, size: page.size })))
            .collect()
    }

    fn begin_copy(&mut self, backing: &mut impl PageBacking, address: u64) -> Option<Copy> {
        let (start, size) = self.slot(address)?;
        let whole = Piece { handle: backing.create(size).ok()?, size };
        self.stats.created += 1;
        self.stats.physical += size;
        self.stats.peak_physical = self.stats.peak_physical.max(self.stats.physical);
        let parts = self.parts(address);
        if backing.begin_copy(start, whole, &parts).is_err() {
            self.forget(backing, whole, false);
            return None;
        }
        Some(Copy { whole, parts, end: backing.mark() })
    }

    fn end_copy(
        &mut self,
        backing: &mut impl PageBacking,
        address: u64,
        copy: &Copy,
        is_finished: bool,
    ) -> Option<Handle> {
        let whole = copy.whole;
        if backing.end_copy(whole, is_finished).is_err() {
            // The GPU may still write to it, so it is lost; the device reports it as in use.
            self.stats.physical -= whole.size;
            return None;
        }
        // Other threads had the tables while this one waited.
        let has_changed = self.parts(address) != copy.parts;
        let start = self.slot(address).map(|(start, _)| start);
        let is_placed =
            |start| !has_changed && is_finished && backing.replace(start, whole, &copy.parts).is_ok();
        if !start.is_some_and(is_placed) {
            self.forget(backing, whole, false);
            return None;
        }
        let (first, count) = self.ranges.slot(address)?;
        let mut blocks = 0_u32;
        for id in first..first + count {
            self.not_idle(id);
            let page = self.pages.get_mut(id);
            blocks = blocks.saturating_add(page.blocks);
            let (size, is_on_host) = (page.size, page.is_on_host);
            if let Some(handle) = page.handle.take() {
                self.forget(backing, Piece { handle, size }, is_on_host);
            }
        }
        let id = self.ranges.merge(&mut self.pages, address)?;
        let page = self.pages.get_mut(id);
        // A block on two pages counts twice, which keeps nothing that the pin does not keep.
        (page.handle, page.is_pinned, page.blocks) = (Some(whole.handle), true, blocks);
        Some(whole.handle)
    }
}
