//! Memory that a program can do without: cuDNN's workspaces.
//!
//! PyTorch gets a list of algorithms for a convolution from cuDNN, best first, and uses the first whose workspace it
//! can allocate; some algorithm needs none. So a failed workspace does not end the program: the convolution is slower
//! from then on. In a recording, a workspace is a block that is freed before anything else happens, allocated by a
//! convolution, or by the backward thread of a program with convolutions.

use makeroom_core::FastMap;
use makeroom_sim::{AllocatorSpec, Outcome, Program, Step};

use crate::probe::Probe;
use crate::replaying::outcome;

/// Blocks of the same convolution may differ by this much from step to step (see `sizes.rs`).
const ALIKE: u64 = 1 << 20;

/// The workspaces among a program's allocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workspaces {
    /// The site of each allocation that is a workspace.
    keys: FastMap<u32, u64>,
}

impl Workspaces {
    pub(crate) fn from_probe(probe: &Probe) -> Self {
        let passing = passing(&probe.program);
        let is_workspace = |number: usize, key: u64| passing[number] && probe.convolutions.contains(&key);
        let all = probe.keys.iter().enumerate();
        let keys = all.filter(|&(number, &key)| is_workspace(number, key));
        Self { keys: keys.map(|(number, &key)| (number as u32, key)).collect() }
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.keys.contains_key(&number)
    }

    /// The outcome of a run in this much memory, if the program does without workspaces that fail.
    pub(crate) fn outcome(&self, allocator: &AllocatorSpec, mut program: Program, room: u64) -> Outcome {
        loop {
            let outcome = outcome(allocator, &program, room);
            let refused = outcome.refusal.and_then(|refusal| self.keys.get_key_value(&refusal.allocation));
            let Some((&number, &key)) = refused else { return outcome };
            self.leave_out(&mut program, number, key);
        }
    }

    /// Removes a workspace and those of later steps from a program, because PyTorch keeps the algorithm it found. The
    /// failure has emptied the allocator's cache.
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

/// Which allocations were freed before anything else happened, or never made.
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

    /// Every step has one temporary allocation of batch × batch.
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
        let workspaces = Workspaces::from_probe(&probe);
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
        let workspaces = Workspaces::from_probe(&probe);
        let room = probe.program.peak_live() / 2;
        assert!(workspaces.outcome(&AllocatorSpec::default(), probe.program, room).refusal.is_some());
    }
}
