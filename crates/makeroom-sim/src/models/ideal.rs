//! The lower bound for all allocators: exactly the peak live bytes.
//!
//! Nothing is rounded or cached, every byte can move, and driver calls cost nothing. The difference between any other
//! model and this one is the waste of its allocator.

use crate::device::Device;
use crate::driver::Refused;
use crate::model::Model;
use crate::models::slots::Slots;
use crate::pytorch::Request;

/// An allocator that reserves exactly the live memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ideal {
    sizes: Slots<u64>,
    live: u64,
}

impl Model for Ideal {
    fn allocate_block(&mut self, device: &mut Device, slot: u32, request: Request) -> Result<(), Refused> {
        device.take(request.size)?;
        self.live += request.size;
        self.sizes.insert(slot, request.size);
        Ok(())
    }

    fn free_later(&mut self, _device: &mut Device, _slot: u32) {}

    fn free(&mut self, device: &mut Device, slot: u32) {
        if let Some(size) = self.sizes.take(slot) {
            device.give_back(size);
            self.live -= size;
        }
    }

    fn empty_cache(&mut self, _device: &mut Device) {}

    fn reserved(&self) -> u64 {
        self.live
    }
}
