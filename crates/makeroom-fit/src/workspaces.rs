//! Memory that a program can do without: cuDNN's workspaces.
//!
//! PyTorch asks cuDNN for ways to compute a convolution, best first, and takes the first whose workspace it gets; some way
//! needs none. So a workspace that is refused ends nothing: the convolution is slower from then on. In a recording it is a
//! block that is given back before anything else happens, asked for by a convolution, or by the thread of the backward
//! pass of a program that has some.

use makeroom_core::FastMap;
use makeroom_sim::{AllocatorSpec, Outcome, Program, Step};

use crate::probe::Probe;
use crate::replaying::outcome;

/// Blocks of one convolution are that much alike from step to step: see `sizes.rs`.
const ALIKE: u64 = 1 << 20;

/// The workspaces among a program's allocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workspaces {
    /// Who asked, for each that is one.
    keys: FastMap<u32, u64>,
}

impl Workspaces {
    pub(crate) fn of(probe: &Probe) -> Self {
        let passing = passing(&probe.program);
        let is_workspace = |number: usize, key: u64| passing[number] && probe.convolutions.contains(&key);
        let all = probe.keys.iter().enumerate();
        let keys = all.filter(|&(number, &key)| is_workspace(number, key));
        Self { keys: keys.map(|(number, &key)| (number as u32, key)).collect() }
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.keys.contains_key(&number)
    }

    /// What would come of a run in so much memory, in which workspaces that are refused are done without.
    pub(crate) fn outcome(&self, allocator: &AllocatorSpec, mut program: Program, room: u64) -> Outcome {
        loop {
            let outcome = outcome(allocator, &program, room);
            let refused = outcome.refusal.and_then(|refusal| self.keys.get_key_value(&refusal.allocation));
            let Some((&number, &key)) = refused else { return outcome };
            self.leave_out(&mut program, number, key);
        }
    }

    /// Takes a workspace out of a program, and those of later steps: PyTorch keeps to the way that it found. That it was
    /// refused has left the allocator without its cache.
    fn leave_out(&self, program: &mut Program, refused: u32, key: u64) {
        let size = program.size(refused);
        let is_same = |number: u32| {
            self.keys.get(&number) == Some(&key) && program.size(number).abs_diff(size) <= ALIKE
        };
        let mut is_behind = false;
        let mut steps = Vec::with_capacity(program.steps.len());
        let mut events = Vec::with_capacity(program.steps.len());
        for (&step, &event) in program.steps.iter().zip(&program.events) {
            let kept = match step {
                Step::Allocate(number) if number == refused => {
                    is_behind = true;
                    Some(Step::EmptyCache)
                }
                Step::Allocate(number) | Step::Free(number) if is_behind && is_same(number) => None,
                step => Some(step),
            };
            if let Some(step) = kept {
                steps.push(step);
                events.push(event);
            }
        }
        (program.steps, program.events) = (steps, events);
    }
}

/// Which allocations were given back before anything else happened, or never made.
pub(crate) fn passing(program: &Program) -> Vec<bool> {
    let mut is_passing = vec![true; program.allocations.len()];
    for (position, step) in program.steps.iter().enumerate() {
        if let Step::Allocate(number) = *step {
            is_passing[number as usize] = program.steps.get(position + 1) == Some(&Step::Free(number));
        }
    }
    is_passing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Shape, training};

    /// Every step has one allocation of batch × batch that is given back at once.
    fn comparing(convolutions: &[u64]) -> Probe {
        let mut probe = training(&Shape { compares_all: true, steps: 6, ..Shape::default() }, 512);
        probe.convolutions.extend(convolutions);
        probe
    }

    #[test]
    fn a_refused_workspace_is_done_without_in_all_later_steps() {
        let probe = comparing(&[400]);
        let allocator = AllocatorSpec::default();
        let whole = outcome(&allocator, &probe.program, 1 << 40).peak_reserved;
        let room = whole - (600 << 20);
        assert!(outcome(&allocator, &probe.program, room).refusal.is_some());
        let workspaces = Workspaces::of(&probe);
        assert_eq!(workspaces.keys.len(), 6);
        assert_eq!(workspaces.outcome(&allocator, probe.program.clone(), room).refusal, None);
        let mut program = probe.program.clone();
        let first = *workspaces.keys.keys().min().unwrap();
        workspaces.leave_out(&mut program, first, 400);
        assert_eq!(program.steps.len() + 11, probe.program.steps.len());
    }

    #[test]
    fn what_is_not_a_convolutions_is_needed() {
        let probe = comparing(&[]);
        let workspaces = Workspaces::of(&probe);
        let room = probe.program.peak_live() / 2;
        assert!(workspaces.outcome(&AllocatorSpec::default(), probe.program, room).refusal.is_some());
    }
}
