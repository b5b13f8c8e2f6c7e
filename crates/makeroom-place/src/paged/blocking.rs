//! The operations of [`Paged`] for callers that may wait with the policy in their hands: the simulator and tests. They run
//! the same steps as a caller that releases a lock around each wait.

use super::backing::{PageBacking, Waiting};
use super::pause::{Attempt, Pause};
use super::policy::Paged;
use super::report::Unbacked;
use super::whole::Whole;
use crate::pool::Handle;

impl Paged {
    /// The allocator mapped a slot. It gets no memory yet, unless its range is exempt or the slot has 2 MiB. Returns whether the
    /// slot is valid.
    pub fn map(&mut self, backing: &mut impl Waiting, address: u64, size: u64) -> bool {
        let Some(needs_memory) = self.map_slot(address, size) else { return false };
        if needs_memory {
            self.settle(backing, |pages, backing, attempt| pages.back_pages(backing, attempt, address, size));
        }
        true
    }

    /// The allocator unmapped a slot: its memory returns to the device. Returns whether the slot was mapped.
    pub fn unmap(&mut self, backing: &mut impl Waiting, address: u64) -> bool {
        let was_mapped = self.give_up_slot(backing, address);
        if was_mapped {
            self.settle(backing, |pages, backing, attempt| pages.release_slot(backing, attempt, address));
        }
        was_mapped
    }

    /// The allocator gives a range back. Memory of slots that could not be released before is released now. Returns
    /// whether the range was known and is empty.
    pub fn unreserve(&mut self, backing: &mut impl Waiting, address: u64) -> bool {
        self.settle(backing, |pages, backing, attempt| pages.release_range(backing, attempt, address))
    }

    /// A block was placed: its pages get memory.
    pub fn take(&mut self, backing: &mut impl Waiting, address: u64, size: u64) -> Result<(), Unbacked> {
        if self.place_block(address, size) != Some(true) {
            return Ok(());
        }
        let bytes =
            self.settle(backing, |pages, backing, attempt| pages.back_pages(backing, attempt, address, size));
        if bytes == 0 { Ok(()) } else { Err(Unbacked { bytes }) }
    }

    /// All pages of the range keep their memory from now on, and get it now: a CUDA graph may use any of it.
    pub fn exempt(&mut self, backing: &mut impl Waiting, address: u64) {
        if let Some((start, size)) = self.exempt_range(address) {
            self.settle(backing, |pages, backing, attempt| pages.back_pages(backing, attempt, start, size));
        }
    }

    /// The memory under a block stays where it is from now on, as others know it by its handle.
    pub fn pin(&mut self, backing: &mut impl Waiting, address: u64, size: u64) {
        self.pin_pages(address, size);
        self.settle(backing, |pages, backing, attempt| pages.back_pages(backing, attempt, address, size));
    }

    /// [`Self::make_whole`], with its waits.
    pub fn make_whole_now(&mut self, backing: &mut impl Waiting, address: u64) -> Option<Handle> {
        let mut state = Whole::default();
        self.settle(backing, |pages, backing, attempt| {
            pages.make_whole(backing, attempt, address, &mut state)
        })
    }

    fn settle<T, B: Waiting + PageBacking>(
        &mut self,
        backing: &mut B,
        mut step: impl FnMut(&mut Self, &mut B, Attempt) -> Result<T, Pause>,
    ) -> T {
        let mut attempt = Attempt::default();
        loop {
            match step(self, backing, attempt) {
                Ok(done) => return done,
                Err(Pause { mark, timeout }) => {
                    if backing.wait(mark, timeout).is_err() {
                        attempt.time_out(timeout);
                    }
                }
            }
        }
    }
}
