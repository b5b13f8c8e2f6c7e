//! Decides when a run has been observed long enough, and whether it is stuck out of memory.
//!
//! A failed allocation does not mean that the run does not fit: PyTorch frees its cache and retries, cuDNN falls back
//! to an algorithm with a smaller workspace, and a recording that is still being written may end between a failure
//! and its retry. So a run fits if it completes as many steps after a failure as a run without failures has to. It
//! does not fit if it makes no progress after a failure, or keeps failing.

use std::time::{Duration, Instant};

use makeroom_fit::Probe;

/// Factor on the number of steps to observe if steps differ or no optimizer was seen.
const FURTHER: usize = 4;
/// Factor on the number of steps a run may take to recover from repeated failures.
const LAST_CHANCE: usize = 3;
/// A run that makes no progress for this long after a failure is stuck.
const STANDSTILL: Duration = Duration::from_secs(15);

/// How long to wait for a sample of the memory outside the allocator. The recorder makes one every 250 ms while the
/// program calls the driver.
const MEASURING: Duration = Duration::from_secs(1);

/// When to stop observing a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeout {
    /// Steps to observe.
    pub(crate) steps: usize,
    /// Time limit.
    pub(crate) seconds: u64,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// Undecided.
    Open,
    /// Enough steps were observed.
    Enough,
    /// An allocation failed and the run did not recover.
    Stuck,
}

/// Whether no step completed after the last failed allocation.
pub(super) fn is_stuck(probe: &Probe) -> bool {
    probe.refusals > 0 && probe.cycles_since_refusal == 0
}

/// Whether the memory outside the allocator was sampled during the steps.
fn is_measured(probe: &Probe) -> bool {
    probe.overhead.is_none_or(|overhead| overhead.is_settled)
}

/// Observes a run over time.
pub(super) struct Watch {
    timeout: Timeout,
    /// The progress so far, and when it last changed.
    last: (usize, Instant),
    /// When enough steps had completed.
    enough: Option<Instant>,
}

impl Watch {
    pub(super) fn new(timeout: Timeout) -> Self {
        Self { timeout, last: (0, Instant::now()), enough: None }
    }

    pub(super) fn look(&mut self, probe: &Probe) -> Course {
        let done = probe.program.steps.len();
        if done != self.last.0 {
            self.last = (done, Instant::now());
        }
        let course = self.judge(probe, self.last.1.elapsed());
        if course != Course::Enough {
            return course;
        }
        let enough = *self.enough.get_or_insert_with(Instant::now);
        if is_measured(probe) || enough.elapsed() >= MEASURING { course } else { Course::Open }
    }

    /// A run is done when its memory has settled and it has completed enough steps since the last failure; more steps
    /// if they differ or no optimizer was seen.
    fn judge(&self, probe: &Probe, idle: Duration) -> Course {
        let seen = probe.cycles.peaks.len();
        let is_regular = probe.is_optimized && !probe.cycles.vary();
        let wanted = if is_regular { self.timeout.steps } else { self.timeout.steps * FURTHER };
        let is_settled = probe.cycles.are_settled() || seen >= wanted * 2;
        if probe.cycles_since_refusal >= wanted && is_settled {
            return Course::Enough;
        }
        let is_given_up = is_stuck(probe) && idle >= STANDSTILL;
        let is_refused_for_ever = probe.refusals > 0 && seen >= wanted * LAST_CHANCE;
        if is_given_up || is_refused_for_ever { Course::Stuck } else { Course::Open }
    }
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Action, Address, Bytes, DeviceTrace, Event, StackId, StreamId, Trace, TraceKind};
    use makeroom_explain::DeviceOverhead;

    use super::*;

    /// A run: `+` is a step that allocates and frees memory, `!` a failed allocation.
    fn probe(course: &str) -> Probe {
        let mut device = DeviceTrace::default();
        let mut push = |action, number: u64, size| {
            device.events.push(Event {
                action,
                address: Address(number << 32),
                size: Bytes::mib(size),
                stream: StreamId(0),
                time_us: 0,
                stack: StackId::NONE,
            });
        };
        push(Action::Alloc, 1, 64);
        for what in course.chars() {
            match what {
                '+' => {
                    push(Action::Alloc, 2, 900);
                    push(Action::FreeCompleted, 2, 900);
                }
                _ => push(Action::OutOfMemory, 3, 5000),
            }
        }
        let mut probe = Probe::new(4, &Trace::new(TraceKind::Room), &device);
        probe.is_optimized = true;
        probe
    }

    fn course(steps: &str, idle: u64) -> Course {
        let watch = Watch::new(Timeout { steps: 4, seconds: 300 });
        watch.judge(&probe(steps), Duration::from_secs(idle))
    }

    #[test]
    fn a_run_without_refusals_ends_with_its_steps() {
        assert_eq!(course("+++", 0), Course::Open);
        assert_eq!(course("++++", 0), Course::Enough);
    }

    #[test]
    fn a_run_goes_on_until_the_memory_outside_the_allocator_is_measured() {
        let mut probe = probe("++++");
        let overhead = |is_settled| DeviceOverhead {
            total: Bytes::gib(8),
            held: Bytes::mib(400),
            uncertain: Bytes::ZERO,
            is_settled,
            is_own: false,
        };
        let mut watch = Watch::new(Timeout { steps: 4, seconds: 300 });
        probe.overhead = Some(overhead(false));
        assert_eq!(watch.look(&probe), Course::Open);
        probe.overhead = Some(overhead(true));
        assert_eq!(watch.look(&probe), Course::Enough);
        // A program that makes no more calls is not sampled again.
        probe.overhead = Some(overhead(false));
        watch.enough = Instant::now().checked_sub(MEASURING);
        assert_eq!(watch.look(&probe), Course::Enough);
    }

    #[test]
    fn a_refusal_is_the_end_only_where_nothing_comes_after_it() {
        assert_eq!(course("!", 0), Course::Open);
        assert_eq!(course("+!", 5), Course::Open);
        assert_eq!(course("+!", 20), Course::Stuck);
        assert_eq!(course("+!+++", 0), Course::Open);
        assert_eq!(course("+!++++", 0), Course::Enough);
    }

    #[test]
    fn a_run_that_is_refused_in_every_step_does_not_fit() {
        assert_eq!(course("!+!+!+!+", 0), Course::Open);
        assert_eq!(course("!+!+!+!+!+!+!+!+!+!+!+!+", 0), Course::Stuck);
    }
}
