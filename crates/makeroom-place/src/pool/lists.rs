//! Which list of bins a tile hangs in: one for each stream's free memory and one for addresses without memory, both
//! by zone.

use super::streams::StreamIndex;

/// Blocks of up to this size are small.
pub const SMALL: u64 = 1 << 20;

/// Small blocks have addresses of their own: thousands of them come and go at their own pace, and one that lies
/// between large ones would keep their pages from moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// Up to [`SMALL`].
    Small,
    /// Above.
    Large,
}

impl Zone {
    /// Both, in the order of their lists.
    pub(crate) const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// Where a block of this size belongs.
    pub(crate) fn of(size: u64) -> Self {
        if size <= SMALL { Self::Small } else { Self::Large }
    }

    /// The list of its unmapped tiles.
    pub(crate) fn unmapped(self) -> u32 {
        self as u32
    }

    /// The list of what is free on a stream.
    pub(crate) fn free(self, stream: StreamIndex) -> u32 {
        2 + 2 * stream + self as u32
    }

    /// The zone of a list.
    pub(crate) fn of_list(list: u32) -> Self {
        if list.is_multiple_of(2) { Self::Small } else { Self::Large }
    }
}

/// The stream of a list, unless it is one of unmapped tiles.
pub(crate) fn owner_of(list: u32) -> Option<StreamIndex> {
    (list >= 2).then(|| stream_of(list))
}

/// The stream of a list of free tiles.
pub(crate) fn stream_of(list: u32) -> StreamIndex {
    (list - 2) / 2
}
