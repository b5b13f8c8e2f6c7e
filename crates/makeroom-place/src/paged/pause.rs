//! Waiting for the GPU outside the policy.
//!
//! A step that needs memory the GPU may still use returns a [`Pause`] instead of waiting. Its caller releases the lock,
//! waits, and repeats the step, which starts from the tables as they are then.

use super::backing::Mark;
use crate::pool::Timeout;

/// The work that a step must wait for before it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The work before this mark.
    pub mark: Mark,
    /// The longest wait, never [`Timeout::DoNotWait`].
    pub timeout: Timeout,
}

/// One operation, over all repetitions of its step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempt {
    /// The longest wait that timed out. No other is that long: a block has many pages.
    timed_out: Option<Timeout>,
}

impl Attempt {
    /// A wait ended before the work did.
    pub fn time_out(&mut self, timeout: Timeout) {
        if self.timed_out != Some(Timeout::Wait) {
            self.timed_out = Some(timeout);
        }
    }

    pub(super) fn may_wait(self, timeout: Timeout) -> bool {
        match timeout {
            Timeout::DoNotWait => false,
            Timeout::WaitBriefly => self.timed_out.is_none(),
            Timeout::Wait => self.timed_out != Some(Timeout::Wait),
        }
    }
}
