//! The GPU to run on: the first one, with its primary context current.

use std::panic::Location;

use makeroom_core::Bytes;
use makeroom_cuda::{Device, DeviceMemory, Driver, Result};

/// The granularity of large allocations, and of all sizes here.
const GRAIN: u64 = 2 << 20;

/// The first GPU, ready to use.
pub(crate) struct Card {
    pub(crate) driver: &'static Driver,
    pub(crate) device: Device,
    /// Free memory when the program started.
    room: Bytes,
}

impl Card {
    /// Retains the primary context and makes it current. It stays until the process ends, as in most programs.
    pub(crate) fn open(driver: &'static Driver) -> Result<Self> {
        let device = driver.device(0)?;
        device.retain_primary()?.make_current()?;
        let room = driver.memory()?.free;
        Ok(Self { driver, device, room })
    }

    /// A share of the memory that was free when the program started, in whole pages.
    pub(crate) fn percent(&self, percent: u64) -> Bytes {
        Bytes::new(self.room.get() / 100 * percent / GRAIN * GRAIN)
    }

    /// Allocates memory as most programs do.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "stacks must show the caller")]
    #[track_caller]
    pub(crate) fn allocate(&self, bytes: Bytes) -> Result<DeviceMemory> {
        // The compiler merges identical functions, which then share one name; the location keeps them apart.
        std::hint::black_box(Location::caller());
        DeviceMemory::allocate(self.driver, bytes)
    }
}
