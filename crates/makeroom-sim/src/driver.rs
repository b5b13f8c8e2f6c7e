//! What an allocator model asks of a driver.
//!
//! Models are generic over it: in a what-if run it is a simulated device with a capacity and costs, in a check it
//! is the recording itself, which answers with the addresses and refusals that really happened and notes every
//! call that did not.

/// The driver has no memory left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Device memory as an allocator gets it.
pub trait Driver {
    /// Takes a segment (`cudaMalloc`); its address.
    fn allocate(&mut self, size: u64, stream: u64) -> Result<u64, Refused>;

    /// Gives a segment back (`cudaFree`).
    fn release(&mut self, address: u64, size: u64);

    /// Reserves a range of addresses (`cuMemAddressReserve`); its start.
    fn reserve(&mut self, stream: u64, is_small: bool) -> u64;

    /// Maps memory into a reserved range, in handles of `page` bytes each.
    fn map(&mut self, address: u64, size: u64, page: u64) -> Result<(), Refused>;

    /// Unmaps memory and gives its handles back.
    fn unmap(&mut self, address: u64, size: u64, page: u64);

    /// Waits for the device. Allocations whose free was waiting for a stream, by number, are complete now.
    fn synchronize(&mut self) -> Vec<u32>;
}
