//! Waits for the GPU, without the lock.
//!
//! A step of the policy that needs memory the GPU may still use returns a pause. Then the lock is released, and taken again
//! for each look at the device's events. The step is repeated afterwards and starts from the tables as they are then,
//! because other threads may have changed them.
//!
//! PyTorch unmaps slot by slot, with its own lock held. So a GPU that stopped delays one of those calls and not each: after
//! a wait that timed out, there are no further ones until the GPU makes progress.

use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use makeroom_place::paged::{Attempt, Pause};
use makeroom_place::pool::Timeout;

use super::{Inner, Pages};
use crate::backing::BRIEFLY;

/// Looks at the events before the thread sleeps in between, and the length of a sleep. On a busy machine a sleep ends earlier
/// than a call that yields the processor.
const EAGER: u32 = 200;
const NAP: Duration = Duration::from_micros(50);

impl Pages {
    /// Repeats a step until it needs no more waits. All waits of one call together take at most the longest wait. `None`
    /// in a forked child.
    pub(super) fn settle<'pages, T>(
        &'pages self,
        mut inner: MutexGuard<'pages, Inner>,
        mut step: impl FnMut(&mut Inner, Attempt) -> Result<T, Pause>,
    ) -> Option<T> {
        let mut attempt = Attempt::default();
        let mut deadline = None;
        loop {
            let pause = match step(&mut inner, attempt) {
                Ok(done) => return Some(done),
                Err(pause) => pause,
            };
            let begun = Instant::now();
            let deadline = *deadline.get_or_insert(begun + self.longest_wait);
            let end = if pause.timeout == Timeout::Wait { deadline } else { deadline.min(begun + BRIEFLY) };
            let mut has_passed = false;
            if inner.memory.begin_wait(pause) {
                (inner, has_passed) = self.wait(inner, pause, end)?;
            }
            inner.memory.waited(begun.elapsed());
            if !has_passed {
                attempt.time_out(pause.timeout);
            }
        }
    }

    /// Waits until a deadline, or until the driver fails. Returns whether the work has finished.
    fn wait<'pages>(
        &'pages self,
        mut inner: MutexGuard<'pages, Inner>,
        pause: Pause,
        end: Instant,
    ) -> Option<(MutexGuard<'pages, Inner>, bool)> {
        for looks in 0_u32.. {
            match inner.memory.has_passed(pause.mark) {
                Ok(true) => return Some((inner, true)),
                Ok(false) => {}
                Err(_) => break,
            }
            if Instant::now() >= end {
                inner.memory.time_out(pause);
                break;
            }
            drop(inner);
            if looks < EAGER {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(NAP);
            }
            inner = self.lock()?;
        }
        Some((inner, false))
    }
}
