//! What every allocator model can do.

use crate::device::Device;
use crate::driver::Refused;
use crate::pytorch::{Pytorch, Request};

/// An allocator on a simulated device. Allocations have numbers, given by whoever replays.
pub trait Model {
    /// Serves a request as allocation `number`.
    fn allocate(&mut self, device: &mut Device, number: u32, request: Request) -> Result<(), Refused>;

    /// The program gives an allocation back; it waits for a stream.
    fn free_later(&mut self, device: &mut Device, number: u32);

    /// An allocation may be used again. An unknown number is no error: the run that was recorded went on where
    /// this one failed.
    fn free(&mut self, device: &mut Device, number: u32);

    /// The program asks for unused memory to be given back to the driver.
    fn empty_cache(&mut self, device: &mut Device);

    /// What is taken from the driver.
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
