//! The driver interface that allocator models use.
//!
//! Models are generic over it. In a what-if run, the driver is a simulated device with a capacity and costs. In a
//! check, it is the recording itself, which returns the recorded addresses and failures and reports every call that was
//! not recorded.

/// The driver is out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Device memory as an allocator sees it.
pub trait Driver {
    /// Allocates a segment (`cudaMalloc`) and returns its address.
    fn allocate_segment(&mut self, size: u64, stream: u64) -> Result<u64, Refused>;

    /// Frees a segment (`cudaFree`).
    fn release(&mut self, address: u64, size: u64);

    /// Reserves a range of addresses (`cuMemAddressReserve`) and returns its start.
    fn reserve(&mut self, stream: u64, is_small: bool) -> u64;

    /// Maps memory into a reserved range, in handles of `page` bytes each.
    fn map(&mut self, address: u64, size: u64, page: u64) -> Result<(), Refused>;

    /// Unmaps memory and releases its handles.
    fn unmap(&mut self, address: u64, size: u64, page: u64);

    /// Whether a limit that the allocator's settings do not contain is reached. Only a recording knows.
    fn is_limited(&self) -> bool {
        false
    }

    /// Synchronizes the device. Returns the numbers of allocations whose pending frees are now complete.
    fn synchronize(&mut self) -> Vec<u32>;
}
