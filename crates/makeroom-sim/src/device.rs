//! A device in a what-if run: a capacity, addresses, and what driver calls cost.
//!
//! Addresses rise and are never used twice, aligned to 2 MiB: a declared oracle. Where two unused blocks of equal
//! size compete the lower address wins, so a run can differ from the real one in which of them it takes, not in
//! how large anything is. Who wants to foretell one real run has them placed as the driver does it (`addresses`).

use crate::addresses::Addresses;
use crate::costs;
use crate::driver::{Driver, Refused};

/// The grain of driver memory.
pub const PAGE: u64 = 2 << 20;
/// The first address.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;
/// As much as there are addresses for on today's machines; a device without a capacity has this much.
const ALL_ADDRESSES: u64 = 1 << 47;
/// The distance between reserved ranges.
const RESERVATION: u64 = 1 << 47;

/// A device that answers an allocator model.
#[derive(Clone, Debug)]
pub struct Device {
    capacity: u64,
    taken: u64,
    peak_taken: u64,
    next_address: u64,
    /// Where the driver would put things; `None` under the plain oracle.
    addresses: Option<Addresses>,
    next_reservation: u64,
    calls: u64,
    nanoseconds: u64,
    /// Allocations whose free waits for a stream, in the order of their requests.
    pending: Vec<u32>,
}

impl Device {
    /// A device with this much memory for the allocator; `None` refuses only what no device could have.
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
        }
    }

    /// The same device, with addresses like the driver's.
    #[must_use]
    pub fn placing_as_the_driver(self) -> Self {
        Self { addresses: Some(Addresses::default()), ..self }
    }

    /// The most that was taken at once.
    pub fn peak_taken(&self) -> u64 {
        self.peak_taken
    }

    /// How many driver calls were made.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// What they cost.
    pub fn nanoseconds(&self) -> u64 {
        self.nanoseconds
    }

    /// Charges calls that move no memory.
    pub fn charge(&mut self, calls: u64, nanoseconds: u64) {
        self.calls += calls;
        self.nanoseconds += nanoseconds;
    }

    /// An allocation's free waits for a stream.
    pub(crate) fn pend(&mut self, allocation: u32) {
        self.pending.push(allocation);
    }

    /// An allocation's free is complete.
    pub(crate) fn complete(&mut self, allocation: u32) {
        self.pending.retain(|&waiting| waiting != allocation);
    }

    /// Gives memory back without a driver call.
    pub(crate) fn give_back(&mut self, size: u64) {
        self.taken = self.taken.saturating_sub(size);
    }

    /// Takes memory without a driver call.
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
    fn allocate(&mut self, size: u64, _stream: u64) -> Result<u64, Refused> {
        // A refused call costs too, but nobody has measured what.
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
        // One call each to create and to map a handle, one for access to the whole range.
        self.charge(2 * handles + 1, costs::map(handles));
        Ok(())
    }

    fn unmap(&mut self, _address: u64, size: u64, page: u64) {
        let handles = size / page.max(1);
        self.charge(2 * handles, costs::unmap(handles));
        self.give_back(size);
    }

    fn synchronize(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_device_refuses_and_recovers() {
        let mut device = Device::new(Some(100));
        let first = device.allocate(60, 0).unwrap();
        assert_eq!(device.allocate(60, 0), Err(Refused));
        device.release(first, 60);
        assert!(device.allocate(60, 0).is_ok_and(|second| second != first));
        assert_eq!((device.peak_taken(), device.calls()), (60, 4));
        assert_eq!(device.map(0, 41, 1), Err(Refused));
        assert_eq!(device.map(0, 40, 1), Ok(()));
    }
}
