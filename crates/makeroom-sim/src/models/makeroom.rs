//! makeroom's own pool: the policy that ships, on a simulated device.
//!
//! The policy is `makeroom_place::pool`, unchanged. This file implements its backing: handles come from the device, and
//! every call is charged per handle, as measured. About the GPU's progress, a recording contains only when pending
//! frees were complete. For everything else the worst case is assumed: a fence has passed only after it was waited for.

use makeroom_core::{Address, FastMap, StreamId};
use makeroom_place::pool::{Backing, Fence, Handle, Piece, Policy, Refused as Refusal, Settings, Timeout};

use crate::costs;
use crate::device::Device;
use crate::driver::{Driver, Refused};
use crate::model::Model;
use crate::models::slots::Slots;
use crate::pytorch::Request;

/// The pool on one device.
pub(crate) struct Makeroom {
    policy: Policy,
    gpu: Gpu,
    /// The location of each allocation, and its stream.
    blocks: Slots<(Address, StreamId)>,
    /// Pending frees: a made-up stream stands for the one that the recording does not name.
    waiting: Slots<StreamId>,
    /// Made-up streams that are free for reuse, and the number of all of them.
    idle_streams: Vec<StreamId>,
    other_streams: u64,
}

impl Default for Makeroom {
    fn default() -> Self {
        Self {
            policy: Policy::new(Settings::default()),
            gpu: Gpu::default(),
            blocks: Slots::default(),
            waiting: Slots::default(),
            idle_streams: Vec::new(),
            other_streams: 0,
        }
    }
}

/// The state of the GPU and of handles.
#[derive(Default)]
struct Gpu {
    last_handle: u64,
    last_mark: u64,
    /// The last fence of each stream, and the last one that has passed.
    fences: FastMap<StreamId, (Fence, Fence)>,
}

/// The device as the policy sees it.
struct Charged<'run> {
    device: &'run mut Device,
    gpu: &'run mut Gpu,
}

impl Makeroom {
    /// An idle made-up stream, with an id that no program uses.
    fn other_stream(&mut self) -> StreamId {
        self.idle_streams.pop().unwrap_or_else(|| {
            self.other_streams += 1;
            StreamId(u64::MAX - self.other_streams)
        })
    }
}

impl Backing for Charged<'_> {
    fn reserve(&mut self, size: u64) -> Result<Address, Refusal> {
        if size > 1 << 47 {
            return Err(Refusal);
        }
        Ok(Address(Driver::reserve(self.device, 0, false)))
    }

    fn create(&mut self, size: u64) -> Result<Handle, Refusal> {
        self.device.take(size).map_err(|Refused| Refusal)?;
        self.device.charge(1, costs::create(size));
        self.gpu.last_handle += 1;
        Ok(Handle(self.gpu.last_handle))
    }

    fn release(&mut self, piece: Piece) -> Result<(), Refusal> {
        self.device.charge(1, costs::release(piece.size));
        self.device.give_back(piece.size);
        Ok(())
    }

    fn map(&mut self, _address: Address, pieces: &[Piece]) -> Result<(), Refusal> {
        let nanoseconds = pieces.iter().map(|piece| costs::MAP + costs::access(piece.size)).sum();
        self.device.charge(pieces.len() as u64 + 1, nanoseconds);
        Ok(())
    }

    fn unmap(&mut self, _address: Address, piece: Piece) -> Result<(), Refusal> {
        self.device.charge(1, costs::unmap_one(piece.size));
        Ok(())
    }

    fn fence(&mut self, stream: StreamId) -> Result<Fence, Refusal> {
        self.gpu.last_mark += 1;
        let fence = Fence(self.gpu.last_mark);
        self.gpu.fences.entry(stream).or_default().0 = fence;
        Ok(fence)
    }

    fn passed(&mut self, stream: StreamId) -> Fence {
        self.gpu.fences.get(&stream).map_or(Fence::BEGINNING, |&(_, passed)| passed)
    }

    fn wait(&mut self, stream: StreamId, fence: Fence, _patience: Timeout) -> Result<(), Refusal> {
        self.gpu.fences.entry(stream).or_default().1 = fence;
        Ok(())
    }
}

impl Model for Makeroom {
    fn allocate_block(&mut self, device: &mut Device, slot: u32, request: Request) -> Result<(), Refused> {
        let stream = StreamId(request.stream);
        let mut backing = Charged { device, gpu: &mut self.gpu };
        let block = self.policy.allocate_block(&mut backing, request.size, stream).map_err(|_| Refused)?;
        self.blocks.insert(slot, (block.address, stream));
        Ok(())
    }

    fn free_later(&mut self, device: &mut Device, slot: u32) {
        if let Some((address, stream)) = self.blocks.take(slot) {
            let other = self.other_stream();
            let mut backing = Charged { device, gpu: &mut self.gpu };
            let is_known = self.policy.record_stream(address, other).is_ok()
                && self.policy.free(&mut backing, address, stream).is_ok();
            debug_assert!(is_known, "{address} was handed out");
            self.waiting.insert(slot, other);
        }
    }

    fn free(&mut self, device: &mut Device, slot: u32) {
        if let Some(other) = self.waiting.take(slot) {
            let (last, passed) = self.gpu.fences.entry(other).or_default();
            *passed = *last;
            self.idle_streams.push(other);
        } else if let Some((address, stream)) = self.blocks.take(slot) {
            let freed = self.policy.free(&mut Charged { device, gpu: &mut self.gpu }, address, stream);
            debug_assert!(freed.is_ok(), "{address} was handed out");
        }
    }

    fn empty_cache(&mut self, device: &mut Device) {
        self.policy.trim(&mut Charged { device, gpu: &mut self.gpu }, 0, Timeout::Wait);
    }

    fn reserved(&self) -> u64 {
        self.policy.stats().reserved
    }
}
