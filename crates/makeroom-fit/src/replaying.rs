//! A run that was not made: the program at a batch, replayed under an allocator in some memory.
//!
//! Addresses are placed as the driver places them, because this is about one real run and not about an allocator in
//! general. What a program was refused and got over stays refused: PyTorch's allocator gave back all that it could then.

use makeroom_sim::{AllocatorSpec, Outcome, Program, Step, replay};

/// What would come of a run in so much memory.
pub(crate) fn outcome(allocator: &AllocatorSpec, program: &Program, room: u64) -> Outcome {
    let mut device = allocator.device(Some(room)).placing_as_the_driver();
    replay(program, &mut *allocator.build(program, Some(room)), &mut device)
}

/// Whether it would go through.
pub(crate) fn fits(allocator: &AllocatorSpec, program: &Program, room: u64) -> bool {
    outcome(allocator, program, room).refusal.is_none()
}

/// The least room below `room` in which a program goes as far as it was recorded, less one byte: the most in which it is
/// refused. `None` if it is refused in `room` itself, or in no room at all.
pub(crate) fn most_refused(allocator: &AllocatorSpec, program: &Program, room: u64) -> Option<u64> {
    if !fits(allocator, program, room) || fits(allocator, program, 0) {
        return None;
    }
    let (mut refused, mut enough) = (0, room);
    // A mebibyte is no more than the driver's own pages come and go with.
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

/// The program of a run that went on after refusals: they are no end, and left the allocator without its cache.
pub(crate) fn survived(program: &Program) -> Program {
    let mut program = program.clone();
    for step in &mut program.steps {
        if matches!(step, Step::AllocateRefused(_)) {
            *step = Step::EmptyCache;
        }
    }
    program
}

/// The program of a run that a refusal ended: those before it were none.
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
