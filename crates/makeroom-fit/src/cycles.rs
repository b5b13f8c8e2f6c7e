//! How often memory rose and fell: the steps that a run has made.
//!
//! Every step of training, and of serving, takes memory and gives it back: activations rise through the forward pass
//! and fall through the backward pass. So steps can be counted without knowing the framework, from the curve of live
//! bytes alone, also where shapes vary and no two steps are alike. The curve counts as risen above halfway
//! from its floor to its peak, and as fallen below one quarter of that way.

use makeroom_sim::{Program, Step};

/// The cycles of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// The most that was live in each, in order; a cycle that is not over is left out.
    pub peaks: Vec<u64>,
    /// The step of the program with which each was over.
    ends: Vec<usize>,
}

impl Cycles {
    /// Counts them.
    pub fn of(program: &Program) -> Self {
        let curve: Vec<u64> = program.live().collect();
        let Some(peak) = curve.iter().copied().max() else { return Self::default() };
        // What a program loads before its first step is not given back in one: the floor is that of its later half. Nor is
        // it what is left when a program that ends gives everything back.
        let last = program.steps.iter().rposition(|step| matches!(step, Step::Allocate(_))).unwrap_or(0);
        let floor = curve[last / 2..=last].iter().copied().min().unwrap_or(0);
        let height = peak - floor;
        // Memory that hardly moves has no cycles.
        if height / 64 < 1 + peak / 4096 {
            return Self::default();
        }
        let (low, high) = (floor + height / 4, peak - height / 2);
        let mut cycles = Self::default();
        let mut highest = None;
        for (position, live) in curve.into_iter().enumerate() {
            match highest {
                None if live >= high => highest = Some(live),
                None => {}
                Some(so_far) if live <= low => {
                    cycles.peaks.push(so_far);
                    cycles.ends.push(position);
                    highest = None;
                }
                Some(so_far) => highest = Some(so_far.max(live)),
            }
        }
        cycles
    }

    /// Whether no later cycle rose above the first ones by more than a hundredth: what optimizers and caches keep from
    /// their first step on is there.
    pub fn are_settled(&self) -> bool {
        let Some((last_two, earlier)) = self.peaks.split_last_chunk::<2>() else { return false };
        let before = earlier.iter().copied().max().unwrap_or(0);
        last_two.iter().all(|&peak| peak <= before + before / 100)
    }

    /// How many were over after a step of the program.
    pub(crate) fn after(&self, position: usize) -> usize {
        self.ends.len() - self.ends.partition_point(|&end| end <= position)
    }

    /// Whether one cycle is unlike the next: shapes vary.
    pub fn vary(&self) -> bool {
        let Some(settled) = self.peaks.get(2..).filter(|settled| settled.len() > 1) else { return false };
        let (least, most) = (settled.iter().min(), settled.iter().max());
        least.zip(most).is_some_and(|(&least, &most)| most - least > most / 200)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Shape, training};

    #[test]
    fn every_step_of_training_is_a_cycle() {
        let cycles = Cycles::of(&training(&Shape { steps: 5, ..Shape::default() }, 8).program);
        // The first step comes before the optimizer's memory and may stay below the others.
        assert!((4..=5).contains(&cycles.peaks.len()), "{cycles:?}");
        assert!(cycles.are_settled());
        assert!(!cycles.vary());
    }

    #[test]
    fn a_program_that_gives_everything_back_in_the_end_has_the_steps_it_made() {
        let shape = Shape { steps: 6, width: 1 << 19, ..Shape::default() };
        let mut program = training(&shape, 1).program;
        let before = Cycles::of(&program).peaks.len();
        let mut is_live = vec![false; program.allocations.len()];
        for step in &program.steps {
            match *step {
                Step::Allocate(number) => is_live[number as usize] = true,
                Step::Free(number) => is_live[number as usize] = false,
                _ => {}
            }
        }
        for number in (0..is_live.len()).filter(|&number| is_live[number]) {
            program.steps.push(Step::Free(number as u32));
        }
        assert!(before >= 5);
        assert_eq!(Cycles::of(&program).peaks.len(), before);
    }

    #[test]
    fn a_run_that_only_loaded_its_model_has_none() {
        let cycles = Cycles::of(&training(&Shape { steps: 0, ..Shape::default() }, 8).program);
        assert_eq!(cycles, Cycles::default());
        assert!(!cycles.are_settled());
    }

    #[test]
    fn steps_are_counted_where_shapes_vary() {
        let shape = Shape { steps: 7, lengths: vec![40, 100, 80, 60], ..Shape::default() };
        let cycles = Cycles::of(&training(&shape, 8).program);
        // A step that stays below half of the highest is not seen as one.
        assert!((3..=7).contains(&cycles.peaks.len()), "{cycles:?}");
        assert!(cycles.vary());
    }
}
