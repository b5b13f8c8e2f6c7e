//! The interface of all allocator models.

use crate::device::Device;
use crate::driver::Refused;
use crate::pytorch::{Pytorch, Request};

/// An allocator on a simulated device. The replay gives each allocation a slot, which is free again once the allocation
/// is.
pub trait Model {
    /// Serves a request for the allocation in `slot`.
    fn allocate_block(&mut self, device: &mut Device, slot: u32, request: Request) -> Result<(), Refused>;

    /// The program frees an allocation, pending on a stream.
    fn free_later(&mut self, device: &mut Device, slot: u32);

    /// The free of an allocation is complete. An empty slot is not an error: the recorded run continued where this one
    /// failed.
    fn free(&mut self, device: &mut Device, slot: u32);

    /// The program requests that unused memory is returned to the driver.
    fn empty_cache(&mut self, device: &mut Device);

    /// Memory reserved from the driver.
    fn reserved(&self) -> u64;
}

impl Model for Pytorch {
    fn allocate_block(&mut self, device: &mut Device, slot: u32, request: Request) -> Result<(), Refused> {
        Self::allocate_block(self, device, slot, request).map(|_| ())
    }

    fn free_later(&mut self, device: &mut Device, slot: u32) {
        device.pend(slot);
        Self::free_later(self, slot);
    }

    fn free(&mut self, _device: &mut Device, slot: u32) {
        Self::free(self, slot);
    }

    fn empty_cache(&mut self, device: &mut Device) {
        Self::empty_cache(self, device);
    }

    fn reserved(&self) -> u64 {
        Self::reserved(self)
    }
}
