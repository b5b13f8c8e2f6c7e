//! How much of its memory a side needs: what it used of late, and some more.
//!
//! What a side has beyond that lies unused while others need new memory, so it goes back to the device. It is found out only
//! when the pool grows: a side that nobody has to make way for keeps all it has.

use std::time::{Duration, Instant};

use makeroom_place::pool::Policy;

/// What a side may have beyond what it used of late: this much, or this part of that. Blocks of many sizes leave gaps.
const LEAST_SLACK: u64 = 8 << 20;
const SLACK: u64 = 2;
/// How long a while is at least. It ends when the pool grows next.
const WHILE: Duration = Duration::from_millis(100);

/// The most that the blocks of a side held, in this while and in the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lately {
    since: Instant,
    now: u64,
    before: u64,
}

impl Lately {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, now: 0, before: 0 }
    }

    /// How much the side may keep.
    pub(crate) fn keeps(&mut self, policy: &mut Policy, time: Instant) -> u64 {
        self.now = self.now.max(policy.take_most_used());
        let most = self.now.max(self.before);
        if time.duration_since(self.since) >= WHILE {
            *self = Self { since: time, now: 0, before: self.now };
        }
        most + LEAST_SLACK.max(most / SLACK)
    }
}
