//! Chooses the physical memory for a window: which existing handles move there, and the sizes of new ones.

use std::cmp::Reverse;

use super::backing::{Backing, Fence, PAGE, Timeout};
use super::handles::HandleId;
use super::lists::Zone;
use super::policy::Policy;
use super::streams::{EVERYBODY, StreamIndex};
use super::tiles::{NONE, TileId};
use super::window::{Gap, MOST_HOLES, Window};

/// A handle is at most this fraction of the block it is created for. If a smaller block later shares a handle, the
/// handle can no longer move, and the rest of it is hard to use.
const SHARE: u64 = 16;
/// Maximum size of a handle, except in blocks that would otherwise need more than [`MOST_PIECES`].
const LARGEST_HANDLE: u64 = 16 << 20;
const MOST_PIECES: u64 = 1024;
/// Largest handle that moves from large blocks to small ones: small blocks would never return a larger one.
const LARGEST_SMALL_HANDLE: u64 = 2 * PAGE;

/// Which mapped handles may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moving {
    /// Like [`Self::Allowed`], but only for the part that the allowance for new memory does not cover.
    Sparing,
    /// Handles of the request's own stream, and others that the GPU has finished using.
    Allowed,
    /// Handles that the GPU has finished using.
    Idle,
    /// None.
    Refused,
    /// All, because creating new memory failed.
    Needed,
}

impl Moving {
    /// How long to wait for the GPU when a handle moves.
    pub(super) fn timeout(self) -> Timeout {
        match self {
            Self::Sparing | Self::Allowed => Timeout::WaitBriefly,
            Self::Idle | Self::Refused => Timeout::DoNotWait,
            Self::Needed => Timeout::Wait,
        }
    }
}

/// A handle that can move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Donor {
    pub(super) handle: HandleId,
    pub(super) size: u64,
    /// Where it is mapped; 0 if unmapped.
    pub(super) address: u64,
    /// The size of the free memory around it.
    pub(super) hole: u64,
    /// The tile of that memory; none if unmapped.
    pub(super) tile: TileId,
}

impl Policy {
    /// All handles outside the window that can move, largest first. Unmapped handles are always included.
    pub(super) fn donors(
        &mut self,
        backing: &mut impl Backing,
        window: &Window,
        for_zone: Zone,
        for_stream: StreamIndex,
        moving: Moving,
    ) -> Vec<Donor> {
        let mut donors: Vec<Donor> = Vec::new();
        for &handle in &self.handles.spare {
            donors.push(Donor {
                handle,
                size: self.handles.get(handle).piece.size,
                address: 0,
                hole: 0,
                tile: NONE,
            });
        }
        // If all memory is needed, examine all holes.
        let mut holes = if moving == Moving::Needed { usize::MAX } else { MOST_HOLES };
        for stream in self.donating(for_stream, moving) {
            for zone in Zone::ALL {
                for id in self.bins[zone.free(stream) as usize].at_least(&self.tiles, PAGE).take(holes) {
                    holes -= 1;
                    let tile = &self.tiles[id];
                    let may_wait = match moving {
                        Moving::Sparing | Moving::Allowed => stream == for_stream,
                        Moving::Needed => true,
                        Moving::Idle | Moving::Refused => false,
                    };
                    if !may_wait && !self.streams.is_done(backing, stream, Fence(tile.figure)) {
                        continue;
                    }
                    for handle in self.handles.within(tile.address, tile.end()) {
                        let held = self.handles.get(handle);
                        if !window.touches(held.address, held.address + held.piece.size) {
                            donors.push(Donor {
                                handle,
                                size: held.piece.size,
                                address: held.address,
                                hole: tile.size,
                                tile: id,
                            });
                        }
                    }
                }
            }
        }
        if for_zone == Zone::Small {
            donors.retain(|donor| donor.size <= LARGEST_SMALL_HANDLE);
        }
        // A few large handles cost less than many small ones, and using up a small hole is better than splitting a
        // large one.
        donors.sort_unstable_by_key(|donor| (Reverse(donor.size), donor.hole, donor.address));
        donors
    }
}

impl Policy {
    /// The streams whose handles may move, in order.
    fn donating(&mut self, for_stream: StreamIndex, moving: Moving) -> Vec<StreamIndex> {
        let mut streams = match moving {
            Moving::Refused => return Vec::new(),
            Moving::Needed => return self.all_filled(),
            Moving::Sparing | Moving::Allowed | Moving::Idle => {
                Zone::ALL.map(|zone| self.others(zone, for_stream)).concat()
            }
        };
        streams.extend([EVERYBODY, for_stream]);
        streams.sort_unstable();
        streams.dedup();
        streams
    }
}

/// The memory for a gap.
pub(super) struct Filling {
    /// Handles that move there.
    pub(super) handles: Vec<Donor>,
    /// Bytes still missing, for which new handles are created.
    pub(super) missing: u64,
}

/// Takes donors for a gap: the largest ones that fit into the missing size, and finally the smallest remaining one,
/// whose unused part stays free.
pub(super) fn choose(donors: &mut Vec<Donor>, gap: &Gap, allowance: &mut u64) -> Filling {
    let mut handles = Vec::new();
    let new = (gap.needed.min(*allowance)) / PAGE * PAGE;
    *allowance -= new;
    let mut missing = gap.needed - new;
    let mut room = gap.room - new;
    // Donors are sorted, largest first. A donor that is too large stays too large as the missing size shrinks.
    let mut place = 0;
    let mut last = donors.len();
    let mut is_taken = vec![false; donors.len()];
    while missing > 0 {
        place = place.max(donors.partition_point(|donor| donor.size > missing));
        let taken = if place < last {
            place += 1;
            place - 1
        } else if let Some(least) = (0..last).rev().find(|&least| !is_taken[least])
            && donors[least].size <= room
        {
            last = least;
            least
        } else {
            break;
        };
        is_taken[taken] = true;
        let donor = donors[taken];
        handles.push(donor);
        missing = missing.saturating_sub(donor.size);
        room -= donor.size;
    }
    let mut is_taken = is_taken.into_iter();
    donors.retain(|_| is_taken.next() != Some(true));
    missing += new;
    Filling { handles, missing }
}

/// The sizes of new handles for `bytes` bytes of a block: powers of two, up to 1/16 of the block.
pub(super) fn pieces(mut bytes: u64, block: u64) -> Vec<u64> {
    let most = (block / SHARE).clamp(PAGE, LARGEST_HANDLE).max(block / MOST_PIECES);
    let mut piece = 1 << most.ilog2();
    let mut pieces = Vec::new();
    while bytes > 0 {
        while piece > bytes {
            piece /= 2;
        }
        pieces.push(piece);
        bytes -= piece;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference implementation, one donor at a time: the largest that fits into the missing size, and finally the
    /// smallest.
    fn one_by_one(donors: &mut Vec<Donor>, gap: &Gap) -> Vec<HandleId> {
        let (mut missing, mut room, mut handles) = (gap.needed, gap.room, Vec::new());
        while missing > 0 {
            let place = match donors.iter().position(|donor| donor.size <= missing) {
                Some(place) => place,
                None if donors.last().is_some_and(|donor| donor.size <= room) => donors.len() - 1,
                None => break,
            };
            let donor = donors.remove(place);
            handles.push(donor.handle);
            missing = missing.saturating_sub(donor.size);
            room -= donor.size;
        }
        handles
    }

    proptest! {
        #[test]
        fn donors_are_those_that_a_search_for_each_takes(
            mut sizes in prop::collection::vec(1_u64..20, 0..30),
            gaps in prop::collection::vec((1_u64..60, 0_u64..30), 1..4),
        ) {
            sizes.sort_unstable_by_key(|&size| Reverse(size));
            let donor = |(handle, &size): (u32, &u64)| Donor { handle, size: size * PAGE, address: 0, hole: 0, tile: NONE };
            let mut donors: Vec<Donor> = (0..).zip(&sizes).map(donor).collect();
            let mut plain = donors.clone();
            for (needed, more) in gaps {
                let gap = Gap { start: 0, needed: needed * PAGE, room: (needed + more) * PAGE, tile: NONE };
                let taken: Vec<HandleId> =
                    choose(&mut donors, &gap, &mut 0).handles.iter().map(|donor| donor.handle).collect();
                prop_assert_eq!(taken, one_by_one(&mut plain, &gap));
            }
        }
    }
}
