//! The interface of all allocator models.

use crate::device::Device;
use crate::driver::Refused;
use crate::pytorch::{Pytorch, Request};

/// An allocator on a simulated device. The replay assigns numbers to allocations.
pub trait Model {
    /// Serves a request as allocation `number`.
    fn allocate(&mut self, device: &mut Device, number: u32, request: Request) -> Result<(), Refused>;

    /// The program frees an allocation, pending on a stream.
    fn free_later(&mut self, device: &mut Device, number: u32);

    /// The free of an allocation is complete. An unknown number is not an error: the recorded run continued where this
    /// one failed.
    fn free(&mut self, device: &mut Device, number: u32);

    /// The program requests that unused memory is returned to the driver.
    fn empty_cache(&mut self, device: &mut Device);

    /// Memory reserved from the driver.
    fn reserved(&self) -> u64;
}

impl Model for Pytorch {
    fn allocate(&mut self, device: &mut Device, number: u32, request: Request) -> Result<(), Refused> {
        Self::allocate(self, device, number, request).map(|_| ())
    }

    fn free_later(&mut self, device: &mut Device, number: u32) {
        device.pend(number);
        Self::free_later(self, number);
    }

    fn free(&mut self, _device: &mut Device, number: u32) {
        Self::free(self, number);
    }

    fn empty_cache(&mut self, device: &mut Device) {
        Self::empty_cache(self, device);
    }

    fn reserved(&self) -> u64 {
        Self::reserved(self)
    }
}
