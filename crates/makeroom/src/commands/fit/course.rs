//! How a run goes: whether it has shown enough, or is stuck for want of memory.
//!
//! A refusal is not the end. PyTorch's allocator gives its cache back and asks again, cuDNN takes a way that needs less;
//! and a recording that is still being written may end between a refusal and its second answer. So a run fits if it goes on
//! for as long as one without refusals has to, and does not if it comes no further, or is refused again and again.

use std::time::{Duration, Instant};

use makeroom_fit::Probe;

/// So many times the steps are waited for where nothing was seen that ends a step.
const FURTHER: usize = 4;
/// A run that is refused again and again has this many times the steps to get over it.
const LAST_CHANCE: usize = 3;
/// A run that was refused and does nothing for so long is not going on.
const STANDSTILL: Duration = Duration::from_secs(15);

/// How long a run goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Steps to see.
    pub(crate) steps: usize,
    /// Seconds after which it is stopped in any case.
    pub(crate) seconds: u64,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// It is not known yet.
    Open,
    /// It has shown what it needs.
    Enough,
    /// It was refused memory and does not get over it.
    Stuck,
}

/// Whether nothing came after a refusal.
pub(super) fn is_stuck(probe: &Probe) -> bool {
    probe.refusals > 0 && probe.cycles_since_refusal == 0
}

/// Looks at a run again and again.
pub(super) struct Watch {
    patience: Patience,
    /// How far it had come, and since when it has not come further.
    last: (usize, Instant),
}

impl Watch {
    pub(super) fn new(patience: Patience) -> Self {
        Self { patience, last: (0, Instant::now()) }
    }

    pub(super) fn look(&mut self, probe: &Probe) -> Course {
        let done = probe.program.steps.len();
        if done != self.last.0 {
            self.last = (done, Instant::now());
        }
        self.judge(probe, self.last.1.elapsed())
    }

    /// Whether memory has settled, and an optimizer has been at work, or nothing like one comes. Where steps differ, more
    /// of them are seen.
    fn judge(&self, probe: &Probe, idle: Duration) -> Course {
        let seen = probe.cycles.peaks.len();
        let is_regular = probe.is_optimized && !probe.cycles.vary();
        let wanted = if is_regular { self.patience.steps } else { self.patience.steps * FURTHER };
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

    use super::*;

    /// A run: `+` is a step that takes memory and gives it back, `!` a refusal.
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
        let watch = Watch::new(Patience { steps: 4, seconds: 300 });
        watch.judge(&probe(steps), Duration::from_secs(idle))
    }

    #[test]
    fn a_run_without_refusals_ends_with_its_steps() {
        assert_eq!(course("+++", 0), Course::Open);
        assert_eq!(course("++++", 0), Course::Enough);
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
