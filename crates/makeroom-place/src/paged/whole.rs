//! Slots that become one handle, because other processes or libraries know the memory by its handle.
//!
//! The contents are copied, and whatever the GPU writes to the slot after the copy has read it is lost. So the copy begins
//! only on an idle device, and the step that starts it also finishes it and replaces the memory, with the lock held: tens of
//! microseconds for 20 MiB. Nothing prevents the program from submitting work on another thread in that time. If that work
//! still runs when the memory would be replaced, the slot stays as it is; if it began and ended in between, and wrote to
//! the slot, those writes are lost.

use std::time::Duration;

use super::backing::PageBacking;
use super::pause::{Attempt, Pause};
use super::policy::Paged;
use super::table::PageId;
use crate::pool::{Handle, Piece, Timeout};

/// Waits for a device on which other threads submit more work.
const MOST_WAITS: u32 = 8;
/// How long an event of an idle device may take.
const IDLE: Duration = Duration::from_millis(1);
/// How long the copy may take. If it takes longer, its memory is lost.
const COPY: Duration = Duration::from_millis(200);

/// A slot that becomes one handle, over all repetitions of the step.
#[derive(Debug, Default)]
pub struct Whole {
    waits: u32,
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
        match self.ranges.slot(address) {
            None => return Ok(None),
            Some((only, 1)) => return self.keep_one(backing, attempt, only),
            Some(_) => {}
        }
        // Work may have been submitted since the last repetition, so each has a mark of its own.
        let before = backing.mark();
        if !backing.passes_within(before, IDLE) {
            if state.waits == MOST_WAITS {
                return Ok(None);
            }
            state.waits += 1;
            if !self.finish(backing, attempt, before, Timeout::Wait)? {
                return Ok(None);
            }
        }
        Ok(self.merge(backing, address))
    }

    fn keep_one(
        &mut self,
        backing: &mut impl PageBacking,
        attempt: Attempt,
        id: PageId,
    ) -> Result<Option<Handle>, Pause> {
        self.pages.state_mut(id).is_pinned = true;
        if !self.pages.state(id).has_memory() {
            self.back(backing, attempt, id)?;
        }
        Ok(self.pages.handle(id))
    }

    /// The handles of a slot, and where each is mapped.
    fn parts(&self, address: u64) -> Vec<(u64, Piece)> {
        let (first, count) = self.ranges.slot(address).unwrap_or((0, 0));
        let part = |id| {
            let page = self.pages.get(id);
            Some((page.address, Piece { handle: self.pages.handle(id)?, size: page.size }))
        };
        (first..first + count).filter_map(part).collect()
    }

    /// Copies the contents of a slot into one handle, and maps it in their place. The device is idle.
    fn merge(&mut self, backing: &mut impl PageBacking, address: u64) -> Option<Handle> {
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
        let end = backing.mark();
        let is_finished = backing.passes_within(end, COPY);
        if backing.end_copy(whole, is_finished).is_err() {
            // The GPU may still write to it, so it is lost; the device reports it as in use.
            self.stats.physical -= size;
            return None;
        }
        // Work that was submitted during the copy may use the parts.
        let last = backing.mark();
        if !backing.passes_within(last, IDLE) || backing.replace(start, whole, &parts).is_err() {
            self.forget(backing, whole, false);
            return None;
        }
        let (first, count) = self.ranges.slot(address)?;
        let mut blocks = 0_u32;
        for id in first..first + count {
            let (size, state) = (self.pages.get(id).size, *self.pages.state(id));
            blocks = blocks.saturating_add(state.blocks);
            if let Some(handle) = self.take_memory(id) {
                self.forget(backing, Piece { handle, size }, state.is_on_host());
            }
        }
        let id = self.ranges.merge(&mut self.pages, address)?;
        self.set_memory(id, whole.handle, false);
        let state = self.pages.state_mut(id);
        // A block on two pages counts twice, which keeps nothing that the pin does not keep.
        (state.is_pinned, state.blocks) = (true, blocks);
        Some(whole.handle)
    }
}
