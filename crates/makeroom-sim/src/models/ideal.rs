//! The bound that no allocator beats: peak live bytes, exactly.
//!
//! Nothing is rounded, nothing is kept, every byte can move, the driver is free of charge. The distance of any
//! other model to this one is what its allocator wastes.

use crate::device::Device;
use crate::driver::Refused;
use crate::model::Model;
use crate::models::numbered::Numbered;
use crate::pytorch::Request;

/// An allocator that takes what is live and nothing else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ideal {
    sizes: Numbered<u64>,
    live: u64,
}

impl Model for Ideal {
    fn allocate(&mut self, device: &mut Device, number: u32, request: Request) -> Result<(), Refused> {
        device.take(request.size)?;
        self.live += request.size;
        self.sizes.insert(number, request.size);
        Ok(())
    }

    fn free_later(&mut self, _device: &mut Device, _number: u32) {}

    fn free(&mut self, device: &mut Device, number: u32) {
        if let Some(size) = self.sizes.take(number) {
            device.give_back(size);
            self.live -= size;
        }
    }

    fn empty_cache(&mut self, _device: &mut Device) {}

    fn reserved(&self) -> u64 {
        self.live
    }
}
