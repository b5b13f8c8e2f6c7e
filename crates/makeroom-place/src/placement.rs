//! What every policy can do.

/// A place in a space, in bytes from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

/// A contiguous part of a space that was added in one piece. Blocks never reach from one into another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where it begins.
    pub offset: Offset,
    /// How many bytes of it can be used.
    pub size: u64,
}

impl Region {
    /// Where it ends, exclusive.
    pub fn end(&self) -> u64 {
        self.offset.0 + self.size
    }
}

/// The state of a space in figures: `used + free = capacity`, `largest_free ≤ free`, and
/// `holes = 0 ⇔ free = 0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The sizes of all regions together.
    pub capacity: u64,
    /// What is held by blocks, rounding included.
    pub used: u64,
    /// What is not.
    pub free: u64,
    /// The largest hole.
    pub largest_free: u64,
    /// How many holes there are; two that touch inside of a region are one.
    pub holes: usize,
    /// How many blocks are placed.
    pub blocks: usize,
}

/// Nothing is placed at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing is placed at offset {:#x}", .0.0)]
pub struct NotPlaced(pub Offset);

/// A placement policy over a space that can grow.
pub trait Placement {
    /// Finds room for `size` bytes at a multiple of `alignment`, which must be a power of two. `None`: no hole is
    /// large enough, or the alignment is none. A request for nothing is one for the least size there is.
    fn place(&mut self, size: u64, alignment: u64) -> Option<Offset>;

    /// Takes a block away; how many bytes it held. An offset that was not handed out changes nothing.
    fn free(&mut self, offset: Offset) -> Result<u64, NotPlaced>;

    /// How many bytes the block at an offset holds: what was asked for, and its rounding.
    fn size_at(&self, offset: Offset) -> Option<u64>;

    /// Adds a region of at most `size` bytes behind all others. `None` where nothing usable would come of it.
    fn grow(&mut self, size: u64) -> Option<Region>;

    /// Takes away every region that holds no block; which these were.
    fn shrink(&mut self) -> Vec<Region>;

    /// The state in figures.
    fn report(&self) -> Report;
}
