//! How long the program waits for the writer: a progress-based timeout.
//!
//! A writer that makes progress is waited for, even on a machine so busy that it rarely runs: short programs leave
//! all their work to the end, and a fixed timeout would lose all of it. A writer that is stuck, on a disk or on a
//! lock that is never released, uses no CPU time and is soon given up.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::clock;

/// How long the writer may go without CPU time.
const LONGEST_STANDSTILL_NS: u64 = 2_000_000_000;
/// Total timeout.
const LONGEST_WAIT_NS: u64 = 10_000_000_000;

/// The writer's CPU-time clock, and whether it exists. The clock is written first.
static CLOCK: AtomicI32 = AtomicI32::new(0);
static HAS_CLOCK: AtomicBool = AtomicBool::new(false);

/// Makes the calling thread the one that is waited for.
pub(super) fn is_of_this_thread() {
    let mut of_thread = 0;
    // SAFETY: the calling thread is alive, and the out-parameter is valid.
    let has_clock = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut of_thread) } == 0;
    CLOCK.store(of_thread, Ordering::Relaxed);
    HAS_CLOCK.store(has_clock, Ordering::Release);
}

/// A forked child has no writer.
pub(super) fn reset_after_fork() {
    HAS_CLOCK.store(false, Ordering::Relaxed);
}

/// One wait. It takes no lock: it may be in a signal handler.
#[derive(Debug)]
pub(super) struct Timeout {
    began: u64,
    moved: u64,
    used: u64,
}

impl Timeout {
    pub(super) fn new() -> Self {
        let now = clock::monotonic_ns();
        Self { began: now, moved: now, used: used() }
    }

    /// Whether to give up: the writer makes no progress, or took too long.
    pub(super) fn is_over(&mut self) -> bool {
        self.is_over_at(clock::monotonic_ns(), used())
    }

    fn is_over_at(&mut self, now: u64, used: u64) -> bool {
        if used != self.used {
            (self.used, self.moved) = (used, now);
        }
        now.wrapping_sub(self.moved) >= LONGEST_STANDSTILL_NS
            || now.wrapping_sub(self.began) >= LONGEST_WAIT_NS
    }
}

/// The writer's CPU time so far; 0 if unknown.
fn used() -> u64 {
    if HAS_CLOCK.load(Ordering::Acquire) { clock::read(CLOCK.load(Ordering::Relaxed)) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_writer_that_works_is_waited_for_and_one_that_is_stuck_is_not() {
        let timeout = || Timeout { began: 0, moved: 0, used: 0 };
        let mut starved = timeout();
        assert!((1..10).all(|second| !starved.is_over_at(second * SECOND, second)), "it gets its turns");
        assert!(starved.is_over_at(10 * SECOND, 10), "but there is an end");
        let mut stuck = timeout();
        assert!(!stuck.is_over_at(SECOND, 5));
        assert!(!stuck.is_over_at(2 * SECOND, 5));
        assert!(stuck.is_over_at(3 * SECOND, 5));
    }

    #[test]
    fn the_processor_time_of_a_thread_is_seen_from_another() {
        let (told, hears) = std::sync::mpsc::channel();
        let (ends, waits) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            is_of_this_thread();
            let began = used();
            while used() == began {
                std::hint::spin_loop();
            }
            told.send(began).unwrap();
            let _ = waits.recv();
        });
        let began = hears.recv().unwrap();
        assert!(used() > began);
        drop(ends);
        worker.join().unwrap();
    }
}
