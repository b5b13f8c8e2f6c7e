//! What the sizes in a recording mean.

/// PyTorch splits a large block only if the remainder is larger than this.
const UNCUT: u64 = 1 << 20;
/// Blocks are multiples of this.
const GRAIN: u64 = 512;

/// Whether recorded sizes are requests or blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// Requested sizes.
    #[default]
    Requested,
    /// Blocks of PyTorch's own allocator, which reports nothing else: rounded up, and large ones may include the
    /// remainder of the block they were split from.
    Blocks,
}

impl Sizes {
    /// The smallest possible request for a recorded size.
    pub(crate) fn least(self, size: u64) -> u64 {
        match self {
            Self::Requested => size,
            // Larger requests are in a different pool from small ones, so the request was large too.
            Self::Blocks if size > UNCUT => (size - UNCUT).max(UNCUT) - GRAIN + 1,
            Self::Blocks => size.saturating_sub(GRAIN - 1),
        }
    }

    /// Whether a block is small; PyTorch itself allocates some of these temporarily.
    pub(crate) fn is_slight(self, size: u64) -> bool {
        self == Self::Blocks && size <= UNCUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_what_was_asked_for_and_what_nobody_cut_off() {
        assert_eq!(Sizes::Requested.least(5 << 20), 5 << 20);
        assert_eq!(Sizes::Blocks.least(512), 1);
        assert_eq!(Sizes::Blocks.least(5 << 20), (4 << 20) - 511);
        // Small blocks are always split, and a large one is larger than any small one.
        assert_eq!(Sizes::Blocks.least(1 << 20), (1 << 20) - 511);
        assert_eq!(Sizes::Blocks.least((1 << 20) + 512), (1 << 20) - 511);
    }
}
