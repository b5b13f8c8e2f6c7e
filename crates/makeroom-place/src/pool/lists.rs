//! Which list a tile is in: each zone has one list of free memory per stream, and one of unmapped addresses.

use super::streams::StreamIndex;

/// Blocks of up to this size are small.
pub const SMALL: u64 = 1 << 20;

/// Small blocks have their own addresses. Thousands of them come and go independently, and one between large blocks
/// would prevent their pages from moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// Up to [`SMALL`].
    Small,
    /// Above [`SMALL`].
    Large,
}

impl Zone {
    /// Both zones, in the order of their lists.
    pub(crate) const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// The zone for blocks of this size.
    pub(crate) fn for_size(size: u64) -> Self {
        if size <= SMALL { Self::Small } else { Self::Large }
    }

    /// The list of the zone's unmapped tiles.
    pub(crate) fn unmapped(self) -> u32 {
        self as u32
    }

    /// The list of tiles that are free on a stream.
    pub(crate) fn free(self, stream: StreamIndex) -> u32 {
        2 + 2 * stream + self as u32
    }

    /// The zone of a list.
    pub(crate) fn of_list(list: u32) -> Self {
        if list.is_multiple_of(2) { Self::Small } else { Self::Large }
    }
}

/// The stream of a list; `None` for lists of unmapped tiles.
pub(crate) fn owner_of(list: u32) -> Option<StreamIndex> {
    (list >= 2).then(|| stream_of(list))
}

/// The stream of a list of free tiles.
pub(crate) fn stream_of(list: u32) -> StreamIndex {
    (list - 2) / 2
}
