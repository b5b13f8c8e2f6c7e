//! What the sizes of a recording are.

/// PyTorch cuts what is left of a large block off only if it is more than this.
const UNCUT: u64 = 1 << 20;
/// Blocks are multiples of this.
const GRAIN: u64 = 512;

/// Whether sizes are what was asked for, or what was handed out for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// What the program asked for.
    #[default]
    Requested,
    /// Blocks of PyTorch's own allocator, which tells of nothing else: rounded up, and larger ones with what was left of
    /// the block that they were cut from.
    Blocks,
}

impl Sizes {
    /// The least that can have been asked for where a size was recorded.
    pub(crate) fn least(self, size: u64) -> u64 {
        match self {
            Self::Requested => size,
            // What is above that limit lies in another pool than what is not, so it was asked for as such.
            Self::Blocks if size > UNCUT => (size - UNCUT).max(UNCUT) - GRAIN + 1,
            Self::Blocks => size.saturating_sub(GRAIN - 1),
        }
    }

    /// Whether a size is one of small blocks, of which PyTorch itself takes some in passing.
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
        // A small block is always cut, and a large one is larger than any small one.
        assert_eq!(Sizes::Blocks.least(1 << 20), (1 << 20) - 511);
        assert_eq!(Sizes::Blocks.least((1 << 20) + 512), (1 << 20) - 511);
    }
}
