//! A simulated device for what-if runs: capacity, addresses, and the cost of driver calls.
//!
//! By default, addresses increase, are never reused, and are aligned to 2 MiB. This is a simplification: of two free
//! blocks of equal size, the one with the lower address is used, so a run can differ from the real one in which block
//! it picks, but not in any size. To predict a particular run, use addresses placed as the driver does (`addresses`).

use std::collections::hash_map::Entry;

use makeroom_core::FastMap;

use crate::addresses::Addresses;
use crate::costs;
use crate::driver::{Driver, Refused};

/// The granularity of driver memory.
pub const PAGE: u64 = 2 << 20;
/// The first address.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;
/// Capacity of a device without a limit: far more than any GPU has, but small enough that a model's records of its
/// pages fit in memory.
const ALL_ADDRESSES: u64 = 1 << 44;
/// The distance between reserved ranges.
const RESERVATION: u64 = 1 << 47;

/// A device that serves an allocator model.
#[derive(Clone, Debug)]
pub struct Device {
    capacity: u64,
    taken: u64,
    peak_taken: u64,
    next_address: u64,
    /// The driver's placement; `None` for simple increasing addresses.
    addresses: Option<Addresses>,
    next_reservation: u64,
    calls: u64,
    nanoseconds: u64,
    /// The slots of allocations whose free is pending on a stream, in order of request; `None` where it is complete.
    pending: Vec<Option<u32>>,
    /// The position of each slot in `pending`.
    pending_at: FastMap<u32, usize>,
}

impl Device {
    /// A device with this much memory for the allocator; with `None`, only requests larger than any device fail.
    pub fn new(capacity: Option<u64>) -> Self {
        Self {
            capacity: capacity.unwrap_or(ALL_ADDRESSES),
            taken: 0,
            peak_taken: 0,
            next_address: FIRST_ADDRESS,
            addresses: None,
            next_reservation: 1 << 56,
            calls: 0,
            nanoseconds: 0,
            pending: Vec::new(),
            pending_at: FastMap::default(),
        }
    }

    /// The same device with the driver's address placement.
    #[must_use]
    pub fn placing_as_the_driver(self) -> Self {
        Self { addresses: Some(Addresses::default()), ..self }
    }

    /// Peak memory in use.
    pub fn peak_taken(&self) -> u64 {
        self.peak_taken
    }

    /// Memory that is not in use.
    pub(crate) fn free(&self) -> u64 {
        self.capacity - self.taken
    }

    /// Number of driver calls.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Their cost.
    pub fn nanoseconds(&self) -> u64 {
        self.nanoseconds
    }

    /// Charges the cost of calls that do not change memory.
    pub fn charge(&mut self, calls: u64, nanoseconds: u64) {
        self.calls += calls;
        self.nanoseconds += nanoseconds;
    }

    /// Notes that an allocation's free is pending on a stream.
    pub(crate) fn pend(&mut self, slot: u32) {
        if let Entry::Vacant(place) = self.pending_at.entry(slot) {
            place.insert(self.pending.len());
            self.pending.push(Some(slot));
        }
    }

    /// Notes that an allocation's free is complete.
    pub(crate) fn complete(&mut self, slot: u32) {
        if self.pending_at.is_empty() {
            return;
        }
        if let Some(position) = self.pending_at.remove(&slot) {
            self.pending[position] = None;
        }
        if self.pending.len() > 2 * self.pending_at.len() + 64 {
            self.forget_completed();
        }
    }

    fn forget_completed(&mut self) {
        self.pending.retain(Option::is_some);
        let slots = self.pending.iter().flatten().zip(0..);
        self.pending_at = slots.map(|(&slot, position)| (slot, position)).collect();
    }

    /// Frees memory without a driver call.
    pub(crate) fn give_back(&mut self, size: u64) {
        self.taken = self.taken.saturating_sub(size);
    }

    /// Allocates memory without a driver call.
    pub(crate) fn take(&mut self, size: u64) -> Result<(), Refused> {
        let taken = self.taken.checked_add(size).ok_or(Refused)?;
        if taken > self.capacity {
            return Err(Refused);
        }
        self.taken = taken;
        self.peak_taken = self.peak_taken.max(taken);
        Ok(())
    }
}

impl Driver for Device {
    fn allocate_segment(&mut self, size: u64, _stream: u64) -> Result<u64, Refused> {
        // A failed call also has a cost, but it was not measured.
        self.calls += 1;
        self.take(size)?;
        self.nanoseconds += costs::malloc_or_free(size);
        if let Some(addresses) = &mut self.addresses {
            return Ok(addresses.take(size));
        }
        let address = self.next_address;
        self.next_address = address.saturating_add(size).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        Ok(address)
    }

    fn release(&mut self, address: u64, size: u64) {
        self.charge(1, costs::malloc_or_free(size));
        if let Some(addresses) = &mut self.addresses {
            addresses.give_back(address, size);
        }
        self.give_back(size);
    }

    fn reserve(&mut self, _stream: u64, _is_small: bool) -> u64 {
        self.charge(1, costs::RESERVE);
        let address = self.next_reservation;
        self.next_reservation = address.saturating_add(RESERVATION);
        address
    }

    fn map(&mut self, _address: u64, size: u64, page: u64) -> Result<(), Refused> {
        let handles = size / page.max(1);
        self.take(size)?;
        // One call each to create and map a handle, and one to set access for the whole range.
        self.charge(2 * handles + 1, costs::map(handles));
        Ok(())
    }

    fn unmap(&mut self, _address: u64, size: u64, page: u64) {
        let handles = size / page.max(1);
        self.charge(2 * handles, costs::unmap(handles));
        self.give_back(size);
    }

    fn synchronize(&mut self) -> Vec<u32> {
        self.pending_at.clear();
        std::mem::take(&mut self.pending).into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_device_refuses_and_recovers() {
        let mut device = Device::new(Some(100));
        let first = device.allocate_segment(60, 0).unwrap();
        assert_eq!(device.allocate_segment(60, 0), Err(Refused));
        device.release(first, 60);
        assert!(device.allocate_segment(60, 0).is_ok_and(|second| second != first));
        assert_eq!((device.peak_taken(), device.calls()), (60, 4));
        assert_eq!(device.map(0, 41, 1), Err(Refused));
        assert_eq!(device.map(0, 40, 1), Ok(()));
    }
}
