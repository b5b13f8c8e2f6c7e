//! Where a page gets its memory from, and how it loses it.

use super::backing::{Mark, PageBacking};
use super::pause::{Attempt, Pause};
use super::policy::Paged;
use super::slots::PageId;
use crate::pool::{Piece, Timeout};

/// Memory may exceed the peak of live memory by this fraction before pages move.
const ALLOWANCE: u64 = 1 << 8;

impl Paged {
    /// Gives memory to a page. Returns whether it has some now.
    pub(super) fn back(
        &mut self,
        backing: &mut impl PageBacking,
        attempt: Attempt,
        id: PageId,
    ) -> Result<bool, Pause> {
        let size = self.pages.get(id).size;
        let goal = self.stats.peak_live + self.stats.peak_live / ALLOWANCE;
        let is_beyond = self.stats.physical + size > goal;
        Ok(is_beyond && self.back_with_idle(backing, attempt, id, Timeout::WaitBriefly)?
            || self.back_with_new(backing, id)
            || self.back_with_idle(backing, attempt, id, Timeout::Wait)?
            || self.back_with_moved(backing, attempt, id, true, Timeout::DoNotWait)?.unwrap_or(false)
            || self.back_with_host(backing, id)
            || self.back_with_moved(backing, attempt, id, true, Timeout::Wait)?.unwrap_or(false))
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
        self.stats.peak_on_host = self.stats.peak_on_host.max(self.stats.on_host);
        self.place(backing, id, Piece { handle, size }, true)
    }

    /// Moves the memory of the oldest idle page of the same size. `None` if there is none.
    fn back_with_moved(
        &mut self,
        backing: &mut impl PageBacking,
        attempt: Attempt,
        id: PageId,
        is_on_host: bool,
        timeout: Timeout,
    ) -> Result<Option<bool>, Pause> {
        let Some(donor) = self.idle.oldest_of(self.pages.get(id).size, is_on_host) else { return Ok(None) };
        if !self.finish(backing, attempt, self.pages.get(donor).freed, timeout)? {
            return Ok(Some(false));
        }
        let Some((piece, is_on_host)) = self.lift(backing, donor) else { return Ok(Some(false)) };
        self.stats.moved += 1;
        Ok(Some(self.place(backing, id, piece, is_on_host)))
    }

    /// Uses device memory of idle pages: one of the same size moves; otherwise idle pages are released until a new one
    /// fits.
    fn back_with_idle(
        &mut self,
        backing: &mut impl PageBacking,
        attempt: Attempt,
        id: PageId,
        timeout: Timeout,
    ) -> Result<bool, Pause> {
        if let Some(is_backed) = self.back_with_moved(backing, attempt, id, false, timeout)? {
            return Ok(is_backed);
        }
        let size = self.pages.get(id).size;
        let mut released = 0;
        while released < size {
            let Some(donor) = self.idle.oldest_on_device(&self.pages) else { break };
            if !self.release(backing, attempt, donor, timeout)? {
                break;
            }
            released += self.pages.get(donor).size;
        }
        Ok(released > 0 && self.back_with_new(backing, id))
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
    pub(super) fn release(
        &mut self,
        backing: &mut impl PageBacking,
        attempt: Attempt,
        id: PageId,
        timeout: Timeout,
    ) -> Result<bool, Pause> {
        let page = *self.pages.get(id);
        if page.handle.is_none() || !self.finish(backing, attempt, page.freed, timeout)? {
            return Ok(false);
        }
        let Some((piece, is_on_host)) = self.lift(backing, id) else { return Ok(false) };
        self.forget(backing, piece, is_on_host);
        Ok(true)
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

    /// Whether all work before a mark has finished. A pause, if waiting for it may help.
    pub(super) fn finish(
        &mut self,
        backing: &mut impl PageBacking,
        attempt: Attempt,
        mark: Mark,
        timeout: Timeout,
    ) -> Result<bool, Pause> {
        if backing.passed() >= mark {
            return Ok(true);
        }
        if !attempt.may_wait(timeout) {
            return Ok(false);
        }
        self.stats.waits += 1;
        Err(Pause { mark, timeout })
    }

    pub(super) fn not_idle(&mut self, id: PageId) {
        if self.pages.get(id).is_idle {
            self.idle.remove(&mut self.pages, id);
            self.stats.idle -= self.pages.get(id).size;
        }
    }

    /// A page that nothing uses anymore becomes idle.
    pub(super) fn idle_if_unused(&mut self, id: PageId, mark: Mark) {
        let page = self.pages.get_mut(id);
        if page.is_unused() && !page.is_idle {
            page.freed = mark;
            self.stats.idle += page.size;
            self.idle.push(&mut self.pages, id);
        }
    }
}
