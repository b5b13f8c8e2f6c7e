//! The allocator of JAX and TensorFlow ("best fit with coalescing").
//!
//! `makeroom_place::Bfc` decides where a block goes and when a hole is split. This file grows the pool. JAX
//! preallocates three quarters of the GPU at its first allocation and never allocates again. With `preallocate=false`
//! it allocates regions that double in size from 2 MiB; they are not merged and never freed. If the size of the memory
//! is unknown, there is nothing to take a share of, and the pool grows as if preallocation were off.
//!
//! One pool serves all streams: the runtime keeps buffers until the device is done with them. TensorFlow retries a
//! failed request for ten seconds; this model does not, because nothing else frees memory in a replay.

use makeroom_place::{Bfc as Bins, Offset, Placement};

use crate::device::{Device, PAGE};
use crate::driver::{Driver, Refused};
use crate::model::Model;
use crate::models::options::{self, OptionError};
use crate::models::slots::Slots;
use crate::pytorch::Request;

/// The granularity of blocks.
const GRAIN: u64 = 256;
/// The first region when the pool grows.
const FIRST_REGION: u64 = 2 << 20;
/// Factor by which a region shrinks when its allocation fails.
const BACKPEDAL: f64 = 0.9;

/// The configuration of the pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Options {
    /// Allocate the whole share at once.
    preallocate: bool,
    /// The pool's maximum share of memory.
    fraction: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { preallocate: true, fraction: 0.75 }
    }
}

impl Options {
    pub(crate) fn parse(text: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for entry in options::entries(text) {
            match entry? {
                ("preallocate", value) => options.preallocate = options::boolean("preallocate", value)?,
                ("fraction", value) => options.fraction = options::share("fraction", value)?,
                (name, _) => {
                    return Err(OptionError::unknown(name, "`bfc` accepts `preallocate` and `fraction`"));
                }
            }
        }
        Ok(options)
    }
}

/// A BFC pool.
#[derive(Clone, Debug)]
pub(crate) struct Bfc {
    space: Bins,
    offsets: Slots<Offset>,
    /// The pool's limit; `u64::MAX` is no limit.
    limit: u64,
    /// The size of the next region.
    next_region: u64,
    reserved: u64,
}

impl Bfc {
    pub(crate) fn new(options: Options, memory: Option<u64>) -> Self {
        let limit = memory.map_or(u64::MAX, |memory| {
            let share = (memory as f64 * options.fraction) as u64;
            share.checked_next_multiple_of(PAGE).unwrap_or(share).min(memory)
        });
        let is_whole = options.preallocate && memory.is_some();
        Self {
            space: Bins::new(GRAIN),
            offsets: Slots::default(),
            limit,
            next_region: if is_whole { limit } else { limit.min(FIRST_REGION) },
            reserved: 0,
        }
    }

    /// Allocates a region for at least `size` bytes from the driver.
    fn extend(&mut self, device: &mut Device, size: u64) -> Result<(), Refused> {
        let available = (self.limit - self.reserved) / GRAIN * GRAIN;
        if size > available {
            return Err(Refused);
        }
        let mut is_raised = false;
        while self.next_region < size {
            self.next_region = self.next_region.max(1).checked_mul(2).ok_or(Refused)?;
            is_raised = true;
        }
        let mut region = self.next_region.min(available);
        while device.allocate_segment(region, 0).is_err() {
            let less = ((region as f64 * BACKPEDAL) as u64).next_multiple_of(GRAIN);
            region = less.min(region.saturating_sub(GRAIN));
            if region < size {
                return Err(Refused);
            }
        }
        if !is_raised {
            self.next_region = self.next_region.saturating_mul(2);
        }
        self.reserved += region;
        self.space.grow(region).map(|_| ()).ok_or(Refused)
    }
}

impl Model for Bfc {
    fn allocate_block(&mut self, device: &mut Device, slot: u32, request: Request) -> Result<(), Refused> {
        let size = request.size.max(1).checked_next_multiple_of(GRAIN).ok_or(Refused)?;
        let mut placed = self.space.place(size, GRAIN);
        if placed.is_none() {
            self.extend(device, size)?;
            placed = self.space.place(size, GRAIN);
        }
        self.offsets.insert(slot, placed.ok_or(Refused)?);
        Ok(())
    }

    fn free_later(&mut self, _device: &mut Device, _slot: u32) {}

    fn free(&mut self, _device: &mut Device, slot: u32) {
        if let Some(offset) = self.offsets.take(slot) {
            let freed = self.space.free(offset);
            debug_assert!(freed.is_ok());
        }
    }

    /// The pool does not release memory.
    fn empty_cache(&mut self, _device: &mut Device) {}

    fn reserved(&self) -> u64 {
        self.reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay;
    use crate::testing::Script;

    const MIB: u64 = 1 << 20;

    fn run(options: &str, sizes: &[u64], memory: Option<u64>) -> crate::replay::Outcome {
        let mut script = Script::default();
        for &size in sizes {
            script.allocate(size);
        }
        let mut model = Bfc::new(Options::parse(options).unwrap(), memory);
        replay(&script.program(), &mut model, &mut Device::new(memory))
    }

    #[test]
    fn three_quarters_of_the_card_are_taken_at_once() {
        let outcome = run("", &[MIB, 70 * MIB], Some(100 * MIB));
        assert_eq!((outcome.peak_reserved, outcome.driver_calls), (76 * MIB, 1));
        assert_eq!(outcome.refusal, None);
        assert!(run("fraction=0.5", &[MIB, 70 * MIB], Some(100 * MIB)).refusal.is_some());
    }

    #[test]
    fn regions_double_when_it_grows() {
        // 2, 4, 8 MiB; then 16 is not enough for 20, so the region is raised to 32.
        let outcome = run("preallocate=false", &[2 * MIB, 4 * MIB, 8 * MIB, 20 * MIB], None);
        assert_eq!((outcome.peak_reserved, outcome.driver_calls), ((2 + 4 + 8 + 32) * MIB, 4));
        // A region that was raised for a request does not affect the size of the next one.
        let outcome = run("", &[20 * MIB, 20 * MIB], None);
        assert_eq!(outcome.peak_reserved, (32 + 32) * MIB);
    }

    #[test]
    fn a_refused_region_shrinks_by_tenths() {
        let mut device = Device::new(Some(30 * MIB));
        let mut model = Bfc::new(Options::parse("preallocate=false,fraction=1").unwrap(), Some(60 * MIB));
        let request = Request { size: 20 * MIB, stream: 0, pool: makeroom_core::PoolId::DEFAULT };
        model.allocate_block(&mut device, 0, request).unwrap();
        let tenth_less = 32.0 * MIB as f64 * 0.9;
        assert_eq!(model.reserved(), (tenth_less as u64).next_multiple_of(GRAIN));
        assert_eq!(device.calls(), 2);
    }
}
