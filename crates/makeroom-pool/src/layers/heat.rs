//! Which memory is hot, as far as that can be told when it is asked for.
//!
//! Blocks are not moved once they are placed, so the rule has only the past to go by. A block that lives briefly
//! is a result on its way to the next operation: all of it is written and read within a few launches. A block that
//! lives long lies still most of that time. So on a device that has once been full:
//!
//! - a block is taken to live *long* if most blocks of its size and site were not freed within [`BRIEF`] allocations;
//! - each block that lived briefly and had to go to the host raises the *headroom* by its size, up to an eighth of the device;
//! - blocks that live long leave the headroom free: they go to the host although the device could still take them.
//!
//! A program in which no brief block is ever spilled has no headroom, and every byte of the device is used.

use std::hash::BuildHasher as _;

use makeroom_core::{FastHasher, FastMap};

use crate::site::Site;

/// Blocks that live for so many allocations at most are brief.
const BRIEF: u64 = 64;
/// The part of the device that brief blocks may claim.
const MOST_HEADROOM: u64 = 8;
/// How many kinds of blocks are remembered. When they are more, all are forgotten and learned anew.
const REMEMBERED: usize = 1 << 14;

/// Blocks of one size from one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(u64);

impl Kind {
    pub(super) fn of(bytes: u64, site: Site) -> Self {
        Self(FastHasher::default().hash_one((bytes, site)))
    }
}

/// How many blocks of a kind lived how long.
#[derive(Clone, Copy, Debug, Default)]
struct Lives {
    brief: u32,
    long: u32,
}

/// What is known of how long blocks live, and how full the device can be.
#[derive(Debug, Default)]
pub(super) struct Heat {
    lives: FastMap<u64, Lives>,
    ceiling: u64,
    headroom: u64,
}

impl Heat {
    /// The device was refused when so much of it was reserved.
    pub(super) fn refused(&mut self, reserved: u64) {
        self.ceiling = self.ceiling.max(reserved);
    }

    /// A block was given back that had lived for so many allocations.
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

    /// Whether the room that a block would take is better kept for hotter ones, where so much is live already.
    /// How much that is, is asked for only where it matters: the answer takes the locks of all threads.
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
