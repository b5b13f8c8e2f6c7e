//! Statistics of the pages.

/// The figures of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Stats {
    /// Bytes in blocks, counted in simulations only. In a PyTorch process it is 0, and only the peak is known.
    pub live: u64,
    /// Their peak.
    pub peak_live: u64,
    /// Bytes in handles of the device's memory.
    pub physical: u64,
    /// Their peak.
    pub peak_physical: u64,
    /// Bytes in handles of host memory.
    pub on_host: u64,
    /// Their peak.
    pub peak_on_host: u64,
    /// Bytes in mapped slots: what the allocator above believes to hold.
    pub mapped: u64,
    /// Their peak.
    pub peak_mapped: u64,
    /// Handles created.
    pub created: u64,
    /// Handles moved from one page to another.
    pub moved: u64,
    /// Handles released.
    pub released: u64,
    /// Times the policy waited for the GPU.
    pub waits: u64,
}

/// A block has pages without memory: device and host refused all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes of the block have no memory")]
pub struct Unbacked {
    /// Bytes in pages without memory.
    pub bytes: u64,
}
