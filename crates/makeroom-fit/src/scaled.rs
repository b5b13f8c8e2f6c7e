//! The program at another batch.

use makeroom_core::SortCompact as _;
use makeroom_sim::{AllocatorSpec, Outcome, Program, Step};

use crate::law::{Found, SizeLaw};
use crate::matching;
use crate::probe::Probe;
use crate::replaying::survived;
use crate::workspaces::Workspaces;

/// A program whose sizes depend on the batch.
#[derive(Clone, Debug)]
pub struct Scaled {
    /// The run with the largest batch, which determines order and lifetimes.
    reference: Probe,
    laws: Vec<Found>,
    workspaces: Workspaces,
}

impl Scaled {
    /// Derives the laws from runs with different batches, in any order; `None` without a run.
    pub fn new(probes: Vec<Probe>) -> Option<Self> {
        Self::with_refused(probes, &[])
    }

    /// The same, with runs that failed: their requests are known up to that point.
    pub(crate) fn with_refused(mut probes: Vec<Probe>, refused: &[Probe]) -> Option<Self> {
        probes.sort_compact_by_key(|probe| probe.batch);
        probes.dedup_by_key(|probe| probe.batch);
        let mut reference = probes.pop()?;
        let mut others: Vec<&Probe> = probes.iter().chain(refused).collect();
        others.sort_compact_by_key(|probe| probe.batch);
        others.dedup_by_key(|probe| probe.batch);
        let laws = matching::laws(&reference, &others);
        let workspaces = Workspaces::from_probe(&reference);
        reference.program = survived(&reference.program);
        Some(Self { reference, laws, workspaces })
    }

    /// The run that all others are derived from.
    pub fn reference(&self) -> &Probe {
        &self.reference
    }

    /// The program at a batch.
    pub fn at(&self, batch: u64) -> Program {
        self.with_sizes(|_, law| law.at(batch))
    }

    /// The program with custom sizes.
    pub(crate) fn with_sizes(&self, size: impl Fn(u32, &SizeLaw) -> u64) -> Program {
        let mut program = self.reference.program.clone();
        for (number, (allocation, found)) in program.allocations.iter_mut().zip(&self.laws).enumerate() {
            allocation.size = size(number as u32, &found.law);
        }
        program
    }

    /// The outcome of the program with any sizes, in this much memory.
    pub(crate) fn outcome(&self, allocator: &AllocatorSpec, program: Program, room: u64) -> Outcome {
        self.workspaces.outcome(allocator, program, room)
    }

    /// Whether the program at a batch would complete in this much memory.
    pub(crate) fn fits(&self, allocator: &AllocatorSpec, batch: u64, room: u64) -> bool {
        self.outcome(allocator, self.at(batch), room).refusal.is_none()
    }

    /// Whether any size depends on the batch.
    pub fn grows(&self) -> bool {
        self.laws.iter().any(|found| found.law.grows())
    }

    /// The live allocations at the peak, for a batch.
    pub(crate) fn peak(&self, batch: u64) -> Peak {
        let program = self.at(batch);
        let mut peak = Peak { bytes: program.live_at_start(), numbers: Vec::new() };
        let mut steps = 0;
        for (position, live) in program.live().enumerate() {
            if live > peak.bytes {
                peak.bytes = live;
                steps = position + 1;
            }
        }
        let mut is_live = vec![false; program.allocations.len()];
        is_live[..program.older as usize].fill(true);
        for step in &program.steps[..steps] {
            match *step {
                Step::Allocate(number) => is_live[number as usize] = true,
                Step::Free(number) | Step::FreeCompleted(number) => is_live[number as usize] = false,
                _ => {}
            }
        }
        let numbers = is_live.iter().enumerate().filter(|(_, is_live)| **is_live);
        peak.numbers = numbers.map(|(number, _)| number as u32).collect();
        peak
    }

    /// The law of an allocation.
    pub(crate) fn law(&self, number: u32) -> SizeLaw {
        self.laws[number as usize].law
    }

    /// The share of live memory at the peak whose laws all runs confirmed, from 0 to 1; without optional memory.
    pub fn exact_share(&self, batch: u64) -> f64 {
        let (mut exact, mut all) = (0_u64, 0_u64);
        for number in self.peak(batch).numbers {
            let found = self.laws[number as usize];
            let size = if self.workspaces.contains(number) { 0 } else { found.law.at(batch) };
            all = all.saturating_add(size);
            exact = exact.saturating_add(if found.is_exact { size } else { 0 });
        }
        exact as f64 / all.max(1) as f64
    }

    /// The peak of live memory at a batch, without optional memory.
    pub(crate) fn needed(&self, batch: u64) -> u64 {
        let size = |number, law: &SizeLaw| if self.workspaces.contains(number) { 0 } else { law.at(batch) };
        self.with_sizes(size).peak_live()
    }
}

/// The peak.
pub(crate) struct Peak {
    pub(crate) bytes: u64,
    /// The live allocations.
    pub(crate) numbers: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Shape, training};

    #[test]
    fn the_peak_at_a_batch_is_that_of_the_real_run() {
        let shape = Shape::default();
        let scaled = Scaled::new(vec![training(&shape, 8), training(&shape, 2)]).unwrap();
        let real = training(&shape, 50).program;
        let peak = scaled.peak(50);
        assert_eq!(peak.bytes, real.peak_live());
        assert_eq!(scaled.at(50).peak_live(), real.peak_live());
        let live: u64 = peak.numbers.iter().map(|&number| real.size(number)).sum();
        assert_eq!(live, peak.bytes);
        assert!(scaled.grows());
        assert!(scaled.exact_share(50) > 0.999);
    }
}
