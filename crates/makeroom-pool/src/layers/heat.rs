//! Heuristic for hot memory, applied when a block is allocated.
//!
//! Blocks are never moved, so the heuristic can only use history. A short-lived block is an intermediate result: all
//! of it is written and read within a few launches. A long-lived block is idle most of the time. So on a device that
//! has been full once:
//!
//! - a block counts as *long-lived* if most blocks of its size and site were not freed within [`BRIEF`] allocations;
//! - each short-lived block that was spilled raises the *headroom* by its size, up to an eighth of the device;
//! - long-lived blocks leave the headroom free: they go to the host although they would still fit on the device.
//!
//! A program that never spills a short-lived block has no headroom, and uses every byte of the device.

use std::hash::BuildHasher as _;

use makeroom_core::{FastHasher, FastMap};

use crate::site::Site;

/// Maximum lifetime of a short-lived block, in allocations.
const BRIEF: u64 = 64;
/// Maximum headroom, as a fraction of the device (1/8).
const MOST_HEADROOM: u64 = 8;
/// Maximum number of kinds. When it is reached, all are forgotten and learned again.
const REMEMBERED: usize = 1 << 14;

/// Blocks of one size from one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(u64);

impl Kind {
    pub(super) fn of_block(bytes: u64, site: Site) -> Self {
        Self(FastHasher::default().hash_one((bytes, site)))
    }
}

/// Number of short-lived and long-lived blocks of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Lives {
    brief: u32,
    long: u32,
}

/// Lifetimes of blocks, and the device's capacity.
#[derive(Debug, Default)]
pub(super) struct Heat {
    lives: FastMap<u64, Lives>,
    ceiling: u64,
    headroom: u64,
}

impl Heat {
    /// The device was full with this much reserved.
    pub(super) fn refused(&mut self, reserved: u64) {
        self.ceiling = self.ceiling.max(reserved);
    }

    /// A block was freed after this many allocations.
    pub(super) fn ended(&mut self, kind: Kind, lifetime: u64, bytes: u64, was_spilled: bool) {
        if self.lives.len() >= REMEMBERED {
            self.lives.clear();
        }
        let is_brief = lifetime <= BRIEF;
        let lives = self.lives.entry(kind.0).or_default();
        let count = if is_brief { &mut lives.brief } else { &mut lives.long };
        *count = count.saturating_add(1);
        if was_spilled && is_brief {
            self.headroom = (self.headroom + bytes).min(self.ceiling / MOST_HEADROOM);
        }
    }

    /// Whether a block should leave its space on the device to hotter ones. `live` is called only if it matters,
    /// because it takes the locks of all threads.
    pub(super) fn prefers_host(&self, kind: Kind, bytes: u64, live: impl FnOnce() -> u64) -> bool {
        let lives_long = self.lives.get(&kind.0).is_some_and(|lives| lives.long > lives.brief);
        lives_long && self.headroom > 0 && live() + bytes + self.headroom > self.ceiling
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn long_lives_leave_room_for_brief_ones_that_were_spilled() {
        let (long, brief) = (Kind(1), Kind(2));
        let mut heat = Heat::default();
        heat.refused(1000 * MIB);
        heat.ended(long, 5000, 10 * MIB, false);
        let unasked = || panic!("it does not matter");
        assert!(!heat.prefers_host(long, 10 * MIB, unasked), "nothing brief was ever spilled");
        heat.ended(brief, 3, 20 * MIB, true);
        assert!(heat.prefers_host(long, 10 * MIB, || 980 * MIB));
        assert!(!heat.prefers_host(long, 10 * MIB, || 970 * MIB), "there is room beside the headroom");
        assert!(!heat.prefers_host(brief, 10 * MIB, unasked));
        assert!(!heat.prefers_host(Kind(3), 10 * MIB, unasked), "nothing is known of it");
    }

    #[test]
    fn headroom_is_an_eighth_at_most() {
        let mut heat = Heat::default();
        heat.refused(800 * MIB);
        (0..1000).for_each(|_| heat.ended(Kind(1), 1, 50 * MIB, true));
        assert_eq!(heat.headroom, 100 * MIB);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut heat = Heat::default();
        (0..3 * REMEMBERED as u64).for_each(|kind| heat.ended(Kind(kind), 1, 1, false));
        assert!(heat.lives.len() <= REMEMBERED);
    }
}
