//! Recent use: how much memory an arena needs, estimated from its recent peak plus slack.
//!
//! Anything above that is unused while others need new memory, so it is released to the device. This is evaluated
//! only when the pool grows: otherwise an arena keeps all its memory.

use std::time::{Duration, Instant};

use makeroom_place::pool::Policy;

/// Slack above the recent peak: this much, or this fraction of it (1/2). Blocks of many sizes leave gaps.
const LEAST_SLACK: u64 = 8 << 20;
const SLACK: u64 = 2;
/// Minimum length of a period. It ends when the pool grows next.
const WHILE: Duration = Duration::from_millis(100);

/// Peak of an arena's live blocks in this period and in the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentUse {
    since: Instant,
    now: u64,
    before: u64,
}

impl RecentUse {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, now: 0, before: 0 }
    }

    /// How much memory the arena may keep.
    pub(crate) fn keeps(&mut self, policy: &mut Policy, time: Instant) -> u64 {
        self.now = self.now.max(policy.take_most_used());
        let most = self.now.max(self.before);
        if time.duration_since(self.since) >= WHILE {
            *self = Self { since: time, now: 0, before: self.now };
        }
        most + LEAST_SLACK.max(most / SLACK)
    }
}
