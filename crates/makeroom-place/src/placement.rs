//! The interface of a placement policy.

/// A position in a space, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

/// A contiguous part of a space, added as a whole. Blocks never cross the boundary between two regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its start.
    pub offset: Offset,
    /// Its usable bytes.
    pub size: u64,
}

impl Region {
    /// Its end, exclusive.
    pub fn end(&self) -> u64 {
        self.offset.0 + self.size
    }
}

/// Statistics of a space: `used + free = capacity`, `largest_free ≤ free`, and `holes = 0 ⇔ free = 0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The sum of the sizes of all regions.
    pub capacity: u64,
    /// Bytes in blocks, including rounding.
    pub used: u64,
    /// All other bytes.
    pub free: u64,
    /// The size of the largest hole.
    pub largest_free: u64,
    /// The number of holes; two adjacent holes in a region count as one.
    pub holes: usize,
    /// The number of blocks.
    pub blocks: usize,
}

/// There is no block at this offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing is placed at offset {:#x}", .0.0)]
pub struct NotPlaced(pub Offset);

/// A placement policy over a space that can grow.
pub trait Placement {
    /// Places `size` bytes at a multiple of `alignment`, which must be a power of two. Returns `None` if no hole is
    /// large enough or the alignment is invalid. A request for 0 bytes gets the minimum size.
    fn place(&mut self, size: u64, alignment: u64) -> Option<Offset>;

    /// Frees a block and returns its size. An offset without a block changes nothing.
    fn free(&mut self, offset: Offset) -> Result<u64, NotPlaced>;

    /// The size of the block at an offset, including rounding.
    fn size_at(&self, offset: Offset) -> Option<u64>;

    /// Adds a region of at most `size` bytes after all others. Returns `None` if the region would not be usable.
    fn grow(&mut self, size: u64) -> Option<Region>;

    /// Removes all regions without blocks, and returns them.
    fn shrink(&mut self) -> Vec<Region>;

    /// The statistics of the space.
    fn report(&self) -> Report;
}
