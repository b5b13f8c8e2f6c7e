//! Replays the program at a batch under an allocator with limited memory, in place of a real run.
//!
//! Addresses are placed as the driver does, because this predicts one real run, not an allocator in general. Requests
//! that failed in the recording and from which the program recovered stay failed: PyTorch's allocator freed its whole
//! cache then.

use makeroom_sim::{AllocatorSpec, Outcome, Program, Step, replay};

/// The outcome of a run in this much memory.
pub(crate) fn outcome(allocator: &AllocatorSpec, program: &Program, room: u64) -> Outcome {
    let mut device = allocator.device(Some(room)).placing_as_the_driver();
    replay(program, &mut *allocator.build(program, Some(room)), &mut device)
}

/// Whether it would complete.
pub(crate) fn fits(allocator: &AllocatorSpec, program: &Program, room: u64) -> bool {
    outcome(allocator, program, room).refusal.is_none()
}

/// The largest memory below `room` in which a program fails, to within 1 MiB. `None` if it fails in `room` itself, or
/// in no amount of memory.
pub(crate) fn most_refused(allocator: &AllocatorSpec, program: &Program, room: u64) -> Option<u64> {
    if !fits(allocator, program, room) || fits(allocator, program, 0) {
        return None;
    }
    let (mut refused, mut enough) = (0, room);
    // 1 MiB is less than the fluctuation of the driver's own memory.
    while enough - refused > 1 << 20 {
        let middle = u64::midpoint(refused, enough);
        if fits(allocator, program, middle) {
            enough = middle;
        } else {
            refused = middle;
        }
    }
    Some(refused)
}

/// The program of a run that recovered from failed requests: they become freed caches.
pub(crate) fn survived(program: &Program) -> Program {
    let mut program = program.clone();
    for step in &mut program.steps {
        if matches!(step, Step::AllocateRefused(_)) {
            *step = Step::EmptyCache;
        }
    }
    program
}

/// The program of a run that ended with a failed request; earlier ones were recovered from.
pub(crate) fn refused_last(program: &Program) -> Program {
    let last = program.steps.iter().rposition(|step| matches!(step, Step::AllocateRefused(_)));
    let mut survived = survived(program);
    if let Some(last) = last {
        survived.steps[last] = program.steps[last];
    }
    survived
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Shape, training};

    #[test]
    fn the_most_in_which_a_program_is_refused_is_just_below_what_it_needs() {
        let allocator = AllocatorSpec::default();
        let program = training(&Shape::default(), 8).program;
        let refused = most_refused(&allocator, &program, 1 << 40).unwrap();
        assert!(!fits(&allocator, &program, refused));
        assert!(fits(&allocator, &program, refused + (1 << 20)));
        assert_eq!(most_refused(&allocator, &program, refused), None);
    }

    #[test]
    fn a_refusal_that_was_survived_does_not_end_the_run() {
        let mut program = training(&Shape::default(), 8).program;
        let room = outcome(&AllocatorSpec::default(), &program, 1 << 40).peak_reserved;
        let huge = makeroom_sim::Allocation { size: 1 << 39, ..program.allocations[0] };
        program.allocations.push(huge);
        program.steps.push(Step::AllocateRefused(program.allocations.len() as u32 - 1));
        program.events.push(program.steps.len() as u32);
        assert!(!fits(&AllocatorSpec::default(), &program, room));
        assert!(fits(&AllocatorSpec::default(), &survived(&program), room));
    }
}
