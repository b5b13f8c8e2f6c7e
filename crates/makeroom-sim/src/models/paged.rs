//! PyTorch's expandable segments with physical pages only under live blocks: the policy that ships, on a simulated device.
//!
//! Addresses come from the exact model of PyTorch's allocator. The policy is `makeroom_place::paged`, unchanged. About the
//! GPU's progress, the worst case is assumed: work has finished only after it was waited for.

use makeroom_core::PoolId;
use makeroom_place::paged::{Mark, PageBacking, Paged, Settings as PageSettings, Waiting};
use makeroom_place::pool::{Handle, Piece, Refused as Refusal, Timeout};

use crate::costs;
use crate::device::Device;
use crate::driver::{Driver, Refused};
use crate::model::Model;
use crate::models::slots::Slots;
use crate::pytorch::{Pytorch, RESERVATION, Request, Settings};

/// PyTorch's allocator over pages, on one device.
pub(crate) struct PagedPytorch {
    allocator: Pytorch,
    settings: Settings,
    memory: PageMemory,
    /// The address and the size of each allocation.
    blocks: Slots<(u64, u64)>,
}

/// The pages and the progress of the GPU.
#[derive(Default)]
struct PageMemory {
    pages: Paged,
    progress: Progress,
}

#[derive(Default)]
struct Progress {
    last_handle: u64,
    last_mark: u64,
    passed: Mark,
}

/// The device as the policy sees it.
struct Charged<'run> {
    device: &'run mut Device,
    progress: &'run mut Progress,
}

/// The driver as PyTorch's allocator sees it: mapping costs nothing, and fails only by the commit rule.
struct Virtual<'run> {
    device: &'run mut Device,
    memory: &'run mut PageMemory,
}

impl PagedPytorch {
    /// An empty allocator.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            allocator: Pytorch::new(settings.clone(), None),
            settings,
            memory: PageMemory { pages: Paged::new(PageSettings::default()), ..PageMemory::default() },
            blocks: Slots::default(),
        }
    }

    /// PyTorch reports a free when it is requested, also if it is pending.
    fn give(&mut self, device: &mut Device, slot: u32) {
        if let Some((address, size)) = self.blocks.take(slot) {
            let progress = &mut self.memory.progress;
            self.memory.pages.give(&mut Charged { device, progress }, address, size);
        }
    }
}

impl PageBacking for Charged<'_> {
    fn create(&mut self, size: u64) -> Result<Handle, Refusal> {
        self.device.take(size).map_err(|Refused| Refusal)?;
        self.device.charge(1, costs::create(size));
        self.progress.last_handle += 1;
        Ok(Handle(self.progress.last_handle))
    }

    fn create_on_host(&mut self, _size: u64) -> Result<Handle, Refusal> {
        Err(Refusal)
    }

    fn release(&mut self, piece: Piece) -> Result<(), Refusal> {
        self.device.charge(1, costs::release(piece.size));
        self.device.give_back(piece.size);
        Ok(())
    }

    fn map(&mut self, _address: u64, piece: Piece) -> Result<(), Refusal> {
        self.device.charge(2, costs::MAP + costs::access(piece.size));
        Ok(())
    }

    fn unmap(&mut self, _address: u64, piece: Piece) -> Result<(), Refusal> {
        self.device.charge(1, costs::unmap_one(piece.size));
        Ok(())
    }

    fn mark(&mut self) -> Mark {
        self.progress.last_mark += 1;
        Mark(self.progress.last_mark)
    }

    fn passed(&mut self) -> Mark {
        self.progress.passed
    }
}

impl Waiting for Charged<'_> {
    fn wait(&mut self, _mark: Mark, _timeout: Timeout) -> Result<(), Refusal> {
        // A wait is for everything that was submitted.
        self.progress.passed = Mark(self.progress.last_mark);
        Ok(())
    }
}

impl Driver for Virtual<'_> {
    fn allocate_segment(&mut self, size: u64, stream: u64) -> Result<u64, Refused> {
        self.device.allocate_segment(size, stream)
    }

    fn release(&mut self, address: u64, size: u64) {
        self.device.release(address, size);
    }

    fn reserve(&mut self, stream: u64, is_small: bool) -> u64 {
        let address = self.device.reserve(stream, is_small);
        self.memory.pages.reserve(address, RESERVATION);
        address
    }

    fn map(&mut self, address: u64, size: u64, page: u64) -> Result<(), Refused> {
        let PageMemory { pages, progress } = self.memory;
        if !pages.may_map(size, self.device.free()) {
            return Err(Refused);
        }
        let mut backing = Charged { device: self.device, progress };
        for slot in 0..size / page.max(1) {
            pages.map(&mut backing, address + slot * page, page);
        }
        Ok(())
    }

    fn unmap(&mut self, address: u64, size: u64, page: u64) {
        let PageMemory { pages, progress } = self.memory;
        let mut backing = Charged { device: self.device, progress };
        for slot in 0..size / page.max(1) {
            pages.unmap(&mut backing, address + slot * page);
        }
    }

    fn synchronize(&mut self) -> Vec<u32> {
        self.memory.progress.passed = Mark(self.memory.progress.last_mark);
        self.device.synchronize()
    }
}

impl Model for PagedPytorch {
    fn allocate_block(&mut self, device: &mut Device, slot: u32, request: Request) -> Result<(), Refused> {
        let mut driver = Virtual { device, memory: &mut self.memory };
        let address = self.allocator.allocate_block(&mut driver, slot, request)?;
        let size = self.settings.round_size(request.size);
        let PageMemory { pages, progress } = &mut self.memory;
        let mut backing = Charged { device, progress };
        // Private pools belong to CUDA graphs, or may: their memory does not move.
        if request.pool != PoolId::DEFAULT {
            pages.exempt(&mut backing, address);
        }
        let is_backed = pages.take(&mut backing, address, size).is_ok();
        self.blocks.insert(slot, (address, size));
        if is_backed { Ok(()) } else { Err(Refused) }
    }

    fn free_later(&mut self, device: &mut Device, slot: u32) {
        self.give(device, slot);
        device.pend(slot);
        self.allocator.free_later(slot);
    }

    fn free(&mut self, device: &mut Device, slot: u32) {
        self.give(device, slot);
        self.allocator.free(slot);
    }

    fn empty_cache(&mut self, device: &mut Device) {
        self.allocator.empty_cache(&mut Virtual { device, memory: &mut self.memory });
    }

    fn reserved(&self) -> u64 {
        self.memory.pages.stats().physical
    }
}
