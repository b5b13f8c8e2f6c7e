//! Where a page gets its memory from, and how it loses it.

use super::backing::{Mark, PageBacking};
use super::pause::{Attempt, Pause};
use super::policy::Paged;
use super::report::Stats;
use super::table::PageId;
use crate::pool::{Piece, Timeout};

/// How far the memory held may exceed peak live memory, by the size of that peak. A small job moves many pages to save
/// little, so its allowance is larger. It shrinks when the peak passes 2 GB, and again at 8 GB; memory that is held then is kept.
const ALLOWANCES: [Allowance; 3] = [
    Allowance {
        from: 8_000_000_000,
        whole: 110,
        share: 512,
        least: 16 << 20,
        growth: 16,
        most_growth: 500,
        limit: 125,
    },
    Allowance {
        from: 2_000_000_000,
        whole: 50,
        share: 256,
        least: 32 << 20,
        growth: 16,
        most_growth: 150,
        limit: 50,
    },
    Allowance { from: 0, whole: 12, share: 64, least: 0, growth: 8, most_growth: 14, limit: 6 },
];
/// Beyond `most_growth`, an allowance grows by this fraction of the moved bytes, because a long run may trade some memory for
/// time. This growth stops at `limit`, because memory that keeps growing looks like a leak.
const SLOW_GROWTH: u64 = 1 << 9;

/// `peak / share`, at least `least`, plus growth in a program that keeps moving memory, because moves cost time. If all mapped
/// slots together exceed the peak only slightly (`whole`), they may all have memory, and nothing needs to move.
struct Allowance {
    from: u64,
    /// All mapped slots may have memory if they exceed the peak by at most `peak / whole`.
    whole: u64,
    share: u64,
    least: u64,
    /// It grows by `moved / growth`, up to `peak / most_growth`.
    growth: u64,
    most_growth: u64,
    /// Growth beyond that stops at `peak / limit`.
    limit: u64,
}

impl Allowance {
    fn of(peak: u64) -> &'static Self {
        let [.., smallest] = &ALLOWANCES;
        ALLOWANCES.iter().find(|allowance| peak >= allowance.from).unwrap_or(smallest)
    }

    /// The allowance for a peak, in bytes, after `moved` bytes have moved.
    fn bytes(&self, peak: u64, mapped: u64, moved: u64) -> u64 {
        let all = mapped.saturating_sub(peak);
        if all <= peak / self.whole {
            return all;
        }
        let grown = (moved / self.growth).min(peak / self.most_growth);
        let slowly_grown = (moved - self.growth * grown) / SLOW_GROWTH;
        let quickly_grown = (peak / self.share).max(self.least) + grown;
        quickly_grown.max((quickly_grown + slowly_grown).min(peak / self.limit))
    }
}

impl Paged {
    /// Memory that may be held before pages move.
    fn goal(&self) -> u64 {
        let Stats { peak_live, mapped, .. } = self.stats;
        peak_live.saturating_add(Allowance::of(peak_live).bytes(peak_live, mapped, self.moved_bytes))
    }

    /// Gives memory to a page. Returns whether it has some now.
    pub(super) fn back(
        &mut self,
        backing: &mut impl PageBacking,
        attempt: Attempt,
        id: PageId,
    ) -> Result<bool, Pause> {
        let size = self.pages.get(id).size;
        let is_beyond = self.stats.physical + size > self.goal();
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
        let size = self.pages.get(id).size;
        let Some(donor) = self.idle.oldest_of(&self.pages, size, is_on_host) else { return Ok(None) };
        if !self.finish(backing, attempt, self.pages.state(donor).freed, timeout)? {
            return Ok(Some(false));
        }
        let Some((piece, is_on_host)) = self.lift(backing, donor) else { return Ok(Some(false)) };
        self.stats.moved += 1;
        self.moved_bytes = self.moved_bytes.saturating_add(piece.size);
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
        self.set_memory(id, piece.handle, is_on_host);
        // A page that no block is on has nothing to wait for but what is submitted now.
        self.pages.state_mut(id).freed = backing.mark();
        self.idle.became_idle();
        true
    }

    /// Takes the memory away from an idle page whose work has finished.
    fn lift(&mut self, backing: &mut impl PageBacking, id: PageId) -> Option<(Piece, bool)> {
        let page = self.pages.get(id);
        let piece = Piece { handle: self.pages.handle(id)?, size: page.size };
        backing.unmap(page.address, piece).ok()?;
        self.take_memory(id);
        Some((piece, self.pages.state(id).is_on_host()))
    }

    /// Returns the memory of an idle page to the device. Returns whether it did.
    pub(super) fn release(
        &mut self,
        backing: &mut impl PageBacking,
        attempt: Attempt,
        id: PageId,
        timeout: Timeout,
    ) -> Result<bool, Pause> {
        let state = *self.pages.state(id);
        if !state.has_memory() || !self.finish(backing, attempt, state.freed, timeout)? {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    #[test]
    fn an_allowance_grows_up_to_a_bound() {
        for (peak, first, last) in [
            (0, 0, 0),
            (2 * GB - 1, 31_249_999, 333_333_333),
            (2 * GB, 32 << 20, (32 << 20) + 2 * GB / 150),
            (3 * GB, 32 << 20, 60_000_000),
            (8 * GB - 1, 32 << 20, 159_999_999),
            (8 * GB, 16 << 20, 64_000_000),
        ] {
            let allowance = Allowance::of(peak);
            assert_eq!(allowance.bytes(peak, u64::MAX, 0), first, "{peak}");
            assert_eq!(allowance.bytes(peak, u64::MAX, u64::MAX), last, "{peak}");
        }
    }

    #[test]
    fn all_slots_may_have_memory_if_they_exceed_the_peak_slightly() {
        assert_eq!(Allowance::of(8 * GB).bytes(8 * GB, 8 * GB + 70_000_000, 0), 70_000_000);
        assert_eq!(Allowance::of(8 * GB).bytes(8 * GB, 8 * GB - 1, 0), 0);
    }
}
