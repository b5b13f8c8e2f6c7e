//! Slots that become one handle, because other processes or libraries know the memory by its handle.

use super::backing::PageBacking;
use super::policy::Paged;
use crate::pool::{Handle, Piece, Timeout};

impl Paged {
    /// The memory of the slot that contains an address becomes one handle with the same contents, and stays where it is
    /// from now on. Waits for the device. Returns the handle; if it cannot be had, nothing has changed.
    pub fn make_whole(&mut self, backing: &mut impl PageBacking, address: u64) -> Option<Handle> {
        let (first, count) = self.ranges.slot(address)?;
        if count == 1 {
            self.keep(backing, [first]);
            return self.pages.get(first).handle;
        }
        let (start, size) = self.slot(address)?;
        self.timed_out = None;
        let mark = backing.mark();
        if !self.finish(backing, mark, Timeout::Wait) {
            return None;
        }
        let whole = Piece { handle: backing.create(size).ok()?, size };
        self.stats.created += 1;
        self.stats.physical += size;
        self.stats.peak_physical = self.stats.peak_physical.max(self.stats.physical);
        let ids = first..first + count;
        let backed = ids.clone().filter_map(|id| {
            let page = self.pages.get(id);
            Some((page.address, Piece { handle: page.handle?, size: page.size }))
        });
        let parts: Vec<(u64, Piece)> = backed.collect();
        if backing.replace(start, whole, &parts).is_err() {
            self.forget(backing, whole, false);
            return None;
        }
        let mut blocks = 0_u32;
        for id in ids {
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
